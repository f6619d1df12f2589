// Shows openapi.json as a page. Every text goes in as text, never as HTML.
import { element } from './docs/element.js';
import { curl, readAccess, showCurl } from './docs/example.js';
import { search } from './docs/search.js';

const METHODS = ["post", "put", "get", "patch", "delete"]; // what makes something comes first
const FIRST = [ // the operations of the section at the top, with what each is for
  ["create_job", "A task of your application, or of a worker, runs it. The answer has its id."],
  ["get_job", "How it went. Behind its address, /why says what it waits for, and /output what it printed."],
  ["put_schedule", "A job for each night at 2:30 in Berlin, with up to three attempts."],
];

const PROBLEM = { $ref: "#/components/schemas/ProblemResponse" };

function refName(schema) {
  return schema.$ref ? schema.$ref.split("/").pop() : null;
}

function typeNodes(schema) {
  const name = refName(schema);
  if (name) return [element("a", { href: location.pathname + "#type-" + name }, name)];
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" | ")];
  if (schema.anyOf) {
    const parts = schema.anyOf.filter((part) => part.type !== "null");
    return parts.flatMap((part, index) => (index ? [" | ", ...typeNodes(part)] : typeNodes(part)));
  }
  if (schema.type === "array") return ["array of ", ...typeNodes(schema.items || {})];
  return [schema.type || "any JSON"];
}

function find(schema, key) {
  if (schema[key] !== undefined && schema[key] !== null) return schema[key];
  const part = (schema.anyOf || []).find((each) => find(each, key) !== undefined);
  return part && find(part, key);
}

function limits(schema) {
  const names = {
    minimum: "at least ", maximum: "at most ", minLength: "characters: at least ",
    maxLength: "characters: at most ", maxItems: "items: at most ",
  };
  const found = Object.entries(names)
    .filter(([key]) => find(schema, key) !== undefined)
    .map(([key, words]) => words + find(schema, key));
  const standard = find(schema, "x-default");
  if (standard !== undefined) found.push("default " + JSON.stringify(standard));
  return found.length ? "(" + found.join(", ") + ")" : "";
}

function row(name, schema, isRequired, description) {
  const about = [description || find(schema, "description"), limits(schema)].filter(Boolean);
  return element("tr", {},
    element("td", {}, element("code", isRequired ? { class: "required", title: "required" } : {}, name)),
    element("td", { class: "type" }, ...typeNodes(schema)),
    element("td", {}, about.join(" ")));
}

function table(rows) {
  return element("table", {}, element("tbody", {}, ...rows));
}

function showOperation(path, method, operation, problems) {
  const role = operation.security[0].token;
  const access = role ? ` Role: ${role[0]}.` : " It needs no token.";
  const box = element("section", { id: operation.operationId },
    element("h3", {},
      element("span", { class: "method " + method }, method.toUpperCase()),
      element("span", { class: "path" }, path)),
    element("p", {}, operation.summary + access), showCurl(curl(path, method, operation)));
  if (operation.parameters) {
    box.append(element("h4", {}, "Parameters"), table(operation.parameters.map((parameter) =>
      row(parameter.name, parameter.schema, parameter.required, parameter.description))));
  }
  if (operation.requestBody) {
    const rows = Object.entries(operation.requestBody.content).map(([media, { schema }]) =>
      row(media, schema, operation.requestBody.required));
    box.append(element("h4", {}, "Body"), table(rows));
  }
  const all = Object.entries(operation.responses);
  const answers = all.filter(([, answer]) => !answer.$ref).map(([status, answer]) => {
    const content = answer.content && Object.values(answer.content)[0];
    return element("tr", {},
      element("td", {}, element("code", {}, status)),
      element("td", { class: "type" }, ...(content ? typeNodes(content.schema) : [])),
      element("td", {}, answer.description));
  });
  const named = all.filter(([status, answer]) => answer.$ref && status !== "default").map(([status, answer]) =>
    element("code", { title: problems[refName(answer)].description }, status));
  answers.push(element("tr", {},
    element("td", {}, ...named.flatMap((code) => [code, " "])),
    element("td", { class: "type" }, ...typeNodes(PROBLEM)),
    element("td", {}, "A problem document. Other errors have one, too.")));
  box.append(element("h4", {}, "Answers"), table(answers));
  return box;
}

function showType(name, schema) {
  const required = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([field, part]) =>
    row(field, part, required.has(field)));
  const fields = rows.length ? table(rows) : element("p", { class: "type" }, ...typeNodes(schema));
  return element("section", { id: "type-" + name },
    element("h3", {}, name), element("p", {}, schema.description || ""), fields);
}

function showFirst(api) {
  const box = document.getElementById("first");
  for (const [name, text] of FIRST) {
    for (const [path, item] of Object.entries(api.paths)) {
      const found = Object.entries(item).find(([, operation]) => operation.operationId === name);
      if (found) box.append(element("p", {}, text), showCurl(curl(path, ...found)));
    }
  }
  box.hidden = false;
}

function goToTarget() {
  document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

function show(api) {
  const contents = document.getElementById("contents");
  const operations = document.getElementById("operations");
  const about = document.getElementById("about");
  about.textContent = about.dataset.text = api.info.description;
  showFirst(api);
  for (const { name } of api.tags) {
    contents.append(element("h2", {}, name));
    operations.append(element("h2", {}, name));
    for (const [path, item] of Object.entries(api.paths)) {
      for (const method of METHODS.filter((each) => item[each] && item[each].tags.includes(name))) {
        const id = item[method].operationId;
        contents.append(element("a", { href: location.pathname + "#" + id, "data-for": id }, method.toUpperCase() + " " + path));
        operations.append(showOperation(path, method, item[method], api.components.responses));
      }
    }
  }
  document.getElementById("types-title").hidden = false;
  const types = document.getElementById("types");
  for (const [name, schema] of Object.entries(api.components.schemas)) types.append(showType(name, schema));
  const field = document.getElementById("search");
  field.addEventListener("input", () => search(field.value));
  if (field.value) search(field.value); // typed before the reference was there
  addEventListener("hashchange", () => { // a link may lead to what the search has hidden
    if (!document.querySelector(":target[hidden]")) return;
    field.value = "";
    search("");
    goToTarget();
  });
  goToTarget();
}

const narrow = matchMedia("(max-width: 50rem)");
const fold = () => { document.getElementById("contents").open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();

readAccess()
  .then(() => fetch(new URL("openapi.json", document.baseURI)))
  .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error("status " + answer.status))))
  .then(show)
  .catch((error) => {
    document.getElementById("about").textContent = "openapi.json could not be read: " + error.message;
  });
