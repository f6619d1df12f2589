// The search field of the reference.

// Leaves only what has all the words: in the list of operations, in the operations, in the types.
export function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const box of document.querySelectorAll("#operations section, #types section")) {
    box.hidden = !words.every((word) => box.textContent.toLowerCase().includes(word));
    const link = document.querySelector(`#contents a[data-for="${box.id}"]`);
    if (link) link.hidden = box.hidden;
  }
  for (const title of document.querySelectorAll("#contents h2, #operations h2")) {
    let next = title.nextElementSibling;
    while (next && next.tagName !== "H2" && next.hidden) next = next.nextElementSibling;
    title.hidden = !next || next.tagName === "H2";
  }
  document.getElementById("first").hidden = words.length > 0;
  const count = document.querySelectorAll("#operations section:not([hidden])").length;
  const about = document.getElementById("about");
  const found = count === 1 ? "1 operation matches." : `${count} operations match.`;
  about.textContent = words.length ? found : about.dataset.text;
}
