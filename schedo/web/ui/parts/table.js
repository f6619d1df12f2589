// The table of lists: sorting, selection, and the keys j, k and x; Enter opens the row's link.
import { html, useRef } from '../lib/base.js';
import { useKeys } from '../lib/keys.js';

// columns: [{key, title, cell: (row) => markup, number, sort: name of the order, className, label}]; the first cell has the link.
// label: what stands before the value where there is no head, on a phone; default: the title of a number.
// sort: {by, descending}, onSort(name); selected: Set of keys, onSelect(set); keyOf(row).
export function Table({ columns, rows, keyOf, caption, sort, onSort, selected, onSelect, empty }) {
  const body = useRef();
  const move = (step) => {
    const links = [...body.current.querySelectorAll('tr')].map((row) => row.querySelector('a') ?? row.querySelector('input'));
    const at = links.findIndex((each) => each?.closest('tr').contains(document.activeElement));
    links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
  };
  const latest = useRef(); // keys that follow each other fast come before the next effects
  latest.current = { rows, selected, onSelect };
  const toggle = (key) => {
    const next = new Set(latest.current.selected);
    if (!next.delete(key)) next.add(key);
    latest.current.onSelect(next);
  };
  const select = () => {
    const row = document.activeElement?.closest('tr[data-key]');
    return row && onSelect && body.current.contains(row) ? toggle(keyOf(latest.current.rows[row.rowIndex - 1])) : false;
  };
  useKeys([
    { keys: 'j', help: 'next row', group: 'Lists', run: () => move(1) },
    { keys: 'k', help: 'previous row', group: 'Lists', run: () => move(-1) },
    ...(onSelect ? [{ keys: 'x', help: 'select the row', group: 'Lists', run: select }] : []),
  ], [Boolean(onSelect)]);
  const isWhole = rows.length > 0 && selected && rows.every((row) => selected.has(keyOf(row)));
  const all = () => onSelect(isWhole ? new Set() : new Set(rows.map(keyOf)));
  return html`<div class="table" role="group" aria-label=${caption} tabindex=${0}><table><caption class="vh">${caption}</caption>
    <thead><tr>${onSelect && html`<th class="check"><input type="checkbox" aria-label="Select all rows" checked=${isWhole} onChange=${all}/></th>`}
      ${columns.map((column) => html`<${Head} column=${column} sort=${sort} onSort=${onSort}/>`)}</tr></thead>
    <tbody ref=${body}>${rows.map((row) => html`<tr key=${keyOf(row)} data-key=${keyOf(row)} class=${selected?.has(keyOf(row)) ? 'selected' : ''}>
      ${onSelect && html`<td class="check"><input type="checkbox" aria-label=${`Select ${keyOf(row)}`} checked=${selected.has(keyOf(row))} onChange=${() => toggle(keyOf(row))}/></td>`}
      ${columns.map((column) => html`<td class=${`${column.number ? 'num ' : ''}${column.className ?? ''}`} data-label=${column.label ?? (column.number ? column.title : undefined)}>${column.cell(row)}</td>`)}</tr>`)}</tbody></table>
    ${rows.length ? null : empty}</div>`;
}

function Head({ column, sort, onSort }) {
  const isSorted = sort && column.sort && sort.by === column.sort;
  const order = isSorted ? (sort.descending ? 'descending' : 'ascending') : undefined;
  const text = column.sort && onSort
    ? html`<button class="sort" onClick=${() => onSort(column.sort)}>${column.title}<span aria-hidden="true">${isSorted ? (sort.descending ? ' ↓' : ' ↑') : ''}</span></button>`
    : column.title;
  return html`<th scope="col" class=${`${column.number ? 'num ' : ''}${column.className ?? ''}`} aria-sort=${order}>${text}</th>`;
}

// The steps through a list by its cursors. back: whether there is a page before this one.
export const Pager = ({ next, onNext, onFirst, isFirst, shown }) => html`<nav class="pager" aria-label="Pages">
  <span class="muted">${shown}</span><span class="grow"></span>
  <button class="btn" disabled=${isFirst} onClick=${onFirst}>First page</button>
  <button class="btn" disabled=${!next} onClick=${onNext}>Next page</button></nav>`;
