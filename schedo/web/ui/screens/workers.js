// All workers: who is there, what runs in which slot, and who is silent.
import { get } from '../lib/api.js';
import { html } from '../lib/base.js';
import { count, duration, instant, micros, now, plural } from '../lib/format.js';
import { link, setQuery } from '../lib/router.js';
import { Empty, Failure, Loading, Tag } from '../parts/basics.js';
import { useFollowed } from '../parts/followed.js';
import { Slots, TaskLegend } from '../parts/slots.js';
import { Table } from '../parts/table.js';
import { WorkerActions } from '../parts/worker_actions.js';

const PAGE = 200;
const TONES = { active: 'ok', cordoned: 'warn', draining: 'warn', disconnected: 'bad' };
const STATES = { '': 'all', active: 'active', cordoned: 'cordoned', draining: 'draining', disconnected: 'disconnected' };

export const hrefOf = (name) => link(`/workers/${encodeURIComponent(name)}`);

// "silent 12 s of 30 s", once half of its time is over; what was true when it was read.
export function silence({ last_seen_at: seen, session_timeout: most }, at = now()) {
  if (!seen || !most || at - instant(seen) < micros(most) / 2) return '';
  return `silent ${duration(at - instant(seen))} of ${duration(micros(most))}`;
}

export const WorkerState = ({ worker }) => html`<span class=${`mark ${TONES[worker.state] ?? 'muted'}`}>${worker.state}</span>${worker.health && html` <span class="mark warn">${worker.health}</span>`}`;

export const Resources = ({ worker }) => Object.entries(worker.resources).map(([name, amount]) => html`<${Tag}>${name} ${worker.resources_used[name] ?? 0} of ${amount}</${Tag}> `);

const Labels = ({ labels }) => Object.entries(labels).map(([name, value]) => html`<${Tag}>${name}=${String(value)}</${Tag}> `);

const columns = (reload) => [
  { title: 'Worker', className: 'name', cell: (row) => html`<a href=${hrefOf(row.name)}>${row.name}</a> <span class="muted small">${row.kind}${row.server && ` on ${row.server}`}</span>` },
  { title: 'State', className: 'health', cell: (row) => html`<${WorkerState} worker=${row}/>${row.state !== 'disconnected' && silence(row) ? html` <span class="mark warn small">${silence(row)}</span>` : ''}` },
  { title: 'Slots', className: 'slots-cell', cell: (row) => html`<${Slots} worker=${row}/>` },
  { title: 'Busy', number: true, cell: (row) => html`${count(row.running)} / ${count(row.slots)}` },
  { title: 'Labels', className: 'labels', cell: (row) => html`<${Labels} labels=${row.labels}/>` },
  { title: 'Resources used', className: 'wide', cell: (row) => html`<${Resources} worker=${row}/>` },
  { title: 'Version', className: 'wide', cell: (row) => html`<span class="muted">${row.version ?? '–'}</span>` },
  { title: 'Actions', className: 'acts', cell: (row) => html`<${WorkerActions} worker=${row} small reload=${reload}/>` },
];

const textOf = (row) => [row.name, row.kind, row.server ?? '', row.version ?? '', ...Object.entries(row.labels).map(([name, value]) => `${name}=${value}`), ...(row.tasks ?? []), ...(row.runs ?? []).map((run) => run.task)].join(' ').toLowerCase();
const matches = (row, { q = '', state = '' }) => (!state || row.state === state) && q.toLowerCase().split(/\s+/).every((word) => textOf(row).includes(word));

function Sentence({ items }) {
  const ill = items.filter((row) => row.health || row.state === 'disconnected').length;
  const slots = items.reduce((sum, row) => sum + row.slots, 0);
  const running = items.reduce((sum, row) => sum + row.running, 0);
  if (!items.length) return null;
  return html`<p class="lead">${ill > 0 && html`<span class="mark bad">${plural(ill, 'worker')} with a problem.</span> `}${count(running)} of ${plural(slots, 'slot')} on ${plural(items.length, 'worker')} are busy.</p>`;
}

const Filters = ({ query, items }) => html`<div class="filters"><input type="search" aria-label="Find by name, label or task" placeholder="name, label or task" value=${query.q ?? ''} onInput=${(event) => setQuery({ q: event.target.value, page: '' })}/>
  <div class="seg" role="group" aria-label="State">${Object.entries(STATES).map(([name, word]) => html`<button aria-pressed=${(query.state ?? '') === name} onClick=${() => setQuery({ state: name, page: '' })}>${word} <span class="muted">${count(name ? items.filter((row) => row.state === name).length : items.length)}</span></button>`)}</div></div>`;

function Pages({ page, rows }) {
  const pages = Math.ceil(rows / PAGE);
  if (pages < 2) return null;
  const turn = (to) => setQuery({ page: to || '' }, { push: true });
  return html`<nav class="pager" aria-label="Pages"><span class="muted">${count(page * PAGE + 1)} to ${count(Math.min(rows, (page + 1) * PAGE))} of ${count(rows)}</span><span class="grow"></span>
    <button class="btn" disabled=${page === 0} onClick=${() => turn(page - 1)}>Page before</button><button class="btn" disabled=${page >= pages - 1} onClick=${() => turn(page + 1)}>Next page</button></nav>`;
}

export default function Workers({ query }) {
  const [found, error, reload] = useFollowed(() => get('/v1/workers'), ['workers'], ['workers'], []);
  if (error && !found) return html`<h1>Workers</h1><${Failure} error=${error} what="The workers" again=${reload}/>`;
  if (!found) return html`<h1>Workers</h1><${Loading}/>`;
  const { items } = found;
  const rows = items.filter((row) => matches(row, query));
  const page = Math.min(Math.max(0, Number(query.page) || 0), Math.max(0, Math.ceil(rows.length / PAGE) - 1));
  const nothing = items.length ? html`<${Empty}>No worker matches. <button class="btn small" onClick=${() => setQuery({ q: '', state: '' })}>Show all</button></${Empty}>`
    : html`<${Empty}>No worker is connected, so nothing can run. <code>schedo worker shop:app</code> starts one.</${Empty}>`;
  return html`<div class="head"><h1>Workers</h1><${Sentence} items=${items}/></div>${items.length > 0 && html`<${Filters} query=${query} items=${items}/>`}
    <div class="card stacked"><div class="body"><${Table} caption="Workers" columns=${columns(reload)} rows=${rows.slice(page * PAGE, (page + 1) * PAGE)} keyOf=${(row) => `${row.server ?? ''} ${row.name}`} empty=${nothing}/>
      <${Pages} page=${page} rows=${rows.length}/><${TaskLegend} workers=${rows}/></div></div>`;
}
