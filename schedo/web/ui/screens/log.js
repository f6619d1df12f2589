// Who changed what by hand: through the page, the command line or the API.
import { get } from '../lib/api.js';
import { html, useState } from '../lib/base.js';
import { count } from '../lib/format.js';
import { link, setQuery } from '../lib/router.js';
import { Empty, Failure, Loading, Time, useData } from '../parts/basics.js';
import { Pager, Table } from '../parts/table.js';

const LIMIT = 100;
const FIELDS = { who: 'who', action: 'action', target: 'target' };
const PLACE = /^([a-z]+)\/([^/:]+)$/;
// The view of what was changed, by the first part of its address in the API.
const VIEWS = {
  jobs: (id) => link(`/jobs/${id}`), schedules: (name) => link(`/schedules/${name}`), queues: (name) => link(`/queues/${name}`),
  workers: (name) => link(`/workers/${name}`), expectations: (name) => link('/expectations', { q: decode(name) }), operations: (id) => link('/jobs', { operation: id }),
};

// "pause_schedule" as "pause schedule".
const words = (action) => action.replaceAll('_', ' ');

function Target({ target }) {
  const [, kind, name] = PLACE.exec(target) ?? [];
  return VIEWS[kind] ? html`<a href=${VIEWS[kind](name)}>${decode(name)}</a> <span class="muted small">${kind.slice(0, -1)}</span>` : html`<span title=${target}>${target}</span>`;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const Filter = ({ field, value, children }) => html`<button class="btn small quiet" title=${`Only with this ${FIELDS[field]}`} onClick=${() => setQuery({ [field]: value, cursor: '' })}>${children ?? value}</button>`;

const COLUMNS = [
  { title: 'When', cell: (row) => html`<${Time} at=${row.at}/>` },
  { title: 'Who', cell: (row) => html`<${Filter} field="who" value=${row.who}/>` },
  { title: 'From', className: 'from', cell: (row) => html`${row.via}${row.address ? html` <span class="muted mono small wide">${row.address}</span>` : ''}` },
  { title: 'What', cell: (row) => html`<${Filter} field="action" value=${row.action}>${words(row.action)}</${Filter}>` },
  { title: 'Of', className: 'cut rule', cell: (row) => html`<${Target} target=${row.target}/>` },
  { title: 'Changed', number: true, cell: (row) => (row.count === undefined ? '' : count(row.count)) },
  { title: 'Answer', className: 'cut', cell: (row) => html`<span class="muted" title=${row.answer}>${row.answer}</span>` },
];

const keyOf = (row) => `${row.at} ${row.who} ${row.action} ${row.target}`;

export default function Log({ query }) {
  const { who, action, target, cursor } = query;
  const [found, error, reload] = useData(() => get('/v1/log', { query: { who, action, target, cursor, limit: LIMIT } }), [who, action, target, cursor]);
  const [typed, setTyped] = useState({});
  const submit = (event) => {
    event.preventDefault();
    setQuery({ ...typed, cursor: '' });
    setTyped({});
  };
  const hasFilter = Boolean(who || action || target);
  return html`<div class="head"><h1>Who did what</h1><p class="lead">Changes by hand, newest first. Submits are not among them.</p><div class="acts"><button class="btn" onClick=${reload}>Read again</button></div></div>
    <form class="filters" onSubmit=${submit}>${Object.entries(FIELDS).map(([field, word]) => html`<input type="search" aria-label=${`Only this ${word}`} placeholder=${word} value=${typed[field] ?? query[field] ?? ''} onInput=${(event) => setTyped({ ...typed, [field]: event.target.value })}/>`)}
      <button type="submit" class="btn">Filter</button>${hasFilter && html`<button type="button" class="btn" onClick=${() => setQuery({ who: '', action: '', target: '', cursor: '' })}>Show all</button>`}</form>
    ${error ? html`<${Failure} error=${error} what="The log" again=${reload}/>` : found ? html`<div class="card stacked log"><div class="body"><${Table} caption="Changes by hand" columns=${COLUMNS} rows=${found.items} keyOf=${keyOf}
      empty=${html`<${Empty}>${hasFilter ? 'No change matches.' : 'Nothing was changed by hand yet.'}</${Empty}>`}/>
      ${(found.next_cursor || cursor) && html`<${Pager} next=${found.next_cursor} isFirst=${!cursor} onNext=${() => setQuery({ cursor: found.next_cursor }, { push: true })} onFirst=${() => setQuery({ cursor: '' })} shown=${`${found.items.length} changes`}/>`}</div></div>` : html`<${Loading}/>`}`;
}
