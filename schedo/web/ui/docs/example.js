// The example of an operation: a curl command that a shell can run as it is.
import { element } from './element.js';

let takesToken = true;

// A server without tokens needs none in the examples.
export async function readAccess() {
  const answer = await fetch(new URL("v1/me", document.baseURI));
  if (answer.ok) takesToken = (await answer.json()).access !== "open";
}

// Returns a word of a shell: between single quotes all characters but themselves are kept.
function quote(text) {
  return /^[\w.:\/=@%+,-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
}

export function curl(path, method, operation) {
  const filled = (operation.parameters || []).filter((each) => each.in === "path").reduce(
    (made, each) => made.replace(`{${each.name}}`, encodeURIComponent(each.example)), path);
  const words = ["curl", "-sS"];
  if (method !== "get") words.push("-X", method.toUpperCase());
  words.push(quote(new URL(filled.slice(1), document.baseURI).href));
  const lines = [words.join(" ")];
  if (operation.security[0].token && takesToken) lines.push('-H "Authorization: Bearer $SCHEDO_TOKEN"');
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  if (content && content.example) {
    lines.push("-H 'Content-Type: application/json'", "-d " + quote(JSON.stringify(content.example)));
  }
  return lines.join(" \\\n  ");
}

export function showCurl(text) {
  const shown = element("pre", { tabindex: "0" }, text);
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch { // off localhost and without TLS, browsers refuse to copy
      getSelection().selectAllChildren(shown);
      copy.textContent = "Selected";
    }
  });
  return element("div", { class: "example" }, shown, copy);
}
