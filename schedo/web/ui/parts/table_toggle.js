// A picture's figures as a table, for those who cannot see it or need the numbers.
import { html, useState } from '../lib/base.js';

// head: texts; rows: a function that returns lists of texts, the first of which names the row.
export function TableToggle({ head, rows, caption }) {
  const [isOpen, setOpen] = useState(false);
  return html`<div class="as-table"><button class="btn small quiet" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? 'Hide the table' : 'Show as table'}</button>
    ${isOpen && html`<div class="table short" role="group" tabindex="0" aria-label=${caption}><table><caption class="vh">${caption}</caption>
      <thead><tr>${head.map((text, at) => html`<th scope="col" class=${at ? 'num' : ''}>${text}</th>`)}</tr></thead>
      <tbody>${rows().map((row) => html`<tr>${row.map((text, at) => (at ? html`<td class="num">${text}</td>` : html`<th scope="row">${text}</th>`))}</tr>`)}</tbody></table></div>`}</div>`;
}
