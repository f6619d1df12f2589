// What is expected to happen: beats of work outside, and runs of schedules; the overdue ones first.
import { api, asCurl, get } from '../lib/api.js';
import { html } from '../lib/base.js';
import { count, plural } from '../lib/format.js';
import { features } from '../lib/me.js';
import { setQuery } from '../lib/router.js';
import { undoOwn } from '../lib/undo.js';
import { Action } from '../parts/action.js';
import { Card, Copy, Empty, Failure, Loading, Since, Tag, Time } from '../parts/basics.js';
import { useFollowed } from '../parts/followed.js';
import { hrefOf } from '../parts/schedule_actions.js';
import { hasMask, isRounded } from '../lib/schedules.js';
import { Table } from '../parts/table.js';

const READ = 500; // schedules
const UNDO_MS = 30_000;
const FIELDS = ['cron', 'every', 'tz', 'within', 'on_miss', 'on_back'];
const pathOf = (name) => `/v1/expectations/${encodeURIComponent(name)}`;

async function read() {
  const list = (health) => get('/v1/schedules', { query: { health, limit: READ, fields: 'name,expect,expectation' } });
  const [named, overdue, page] = await Promise.all([get('/v1/expectations'), list('overdue'), list()]);
  const schedules = new Map([...overdue.items, ...page.items].map((item) => [item.name, item]));
  return { isCut: Boolean(page.next_cursor), named: named.items.sort(gravest), runs: [...schedules.values()].filter((item) => item.expect && item.expectation).map((item) => ({ ...item.expectation, name: item.name, expect: item.expect })).sort(gravest) };
}

const gravest = (one, other) => (one.state === 'missed' ? 0 : 1) - (other.state === 'missed' ? 0 : 1) || one.name.localeCompare(other.name);

function remove(item, after) {
  const body = Object.fromEntries(FIELDS.filter((field) => item[field] !== undefined).map((field) => [field, item[field]]));
  const isExact = !hasMask(body) && !isRounded(body);
  return () => ({
    request: { method: 'DELETE', path: pathOf(item.name) }, done: `${item.name} is no longer expected.`, after, undoMs: UNDO_MS,
    ask: { title: `Delete ${item.name}?`, text: `Its beats are refused from then on, and their absence is not noticed.${isExact ? '' : ' It cannot be put back from here.'}`, verb: 'Delete the expectation', danger: true, type: item.name },
    undo: isExact ? () => undoOwn(pathOf(item.name), null, () => api('PUT', pathOf(item.name), body)).then(after) : undefined,
  });
}

const State = ({ item }) => html`<span class=${`mark ${item.state === 'ok' ? 'ok' : 'bad'}`}>${item.state === 'ok' ? 'met' : 'overdue'}</span> <span class="muted small">for <${Since} at=${item.since}/></span>`;

const shared = (lastAt) => [
  { title: 'State', className: 'health', cell: (row) => html`<${State} item=${row}/>` },
  { title: 'Last kept', number: true, className: 'kept', cell: (row) => html`<${Time} at=${row[lastAt]}/>` },
  { title: 'Due by', number: true, cell: (row) => html`<${Time} at=${row.limit_at}/>` },
  { title: 'Missed', number: true, className: 'wide', cell: (row) => count(row.missed) },
];

const named = (reload) => [
  { title: 'Expectation', className: 'name', cell: (row) => html`<b>${row.name}</b>` },
  { title: 'Expected', className: 'cut rule expected', cell: (row) => html`<span title=${row.cron ?? row.every}>${row.cron ? html`<code>${row.cron}</code> ${row.tz ?? ''}` : `every ${row.every}`}, within ${row.within}</span>` },
  ...shared('last_beat_at'),
  { title: 'Owner', className: 'wide', cell: (row) => html`<${Tag}>${row.owner}</${Tag}>` },
  { title: 'Actions', className: 'acts', cell: (row) => html`<span class="row"><${Copy} className="btn small" label="Copy as curl" text=${asCurl({ path: `${pathOf(row.name)}/beat`, body: {} }, features.value.tokens)}/><${Action} operation="delete_expectation" label="Delete…" className="small danger" title=${`Expect ${row.name} no longer`} action=${remove(row, reload)}/></span>` },
];

const RUNS = [
  { title: 'Schedule', className: 'name', cell: (row) => html`<a href=${hrefOf(row.name)}>${row.name}</a>` },
  { title: 'Expected', className: 'cut rule expected', cell: (row) => [row.expect.within && `a completed run within ${row.expect.within}`, row.expect.max_duration && `runs of at most ${row.expect.max_duration}`].filter(Boolean).join(', ') },
  ...shared('kept_at'),
];

const SEARCHED = 8; // expectations: fewer are found by looking

export default function Expectations({ query }) {
  const [found, error, reload] = useFollowed(read, ['schedules'], ['schedules'], []);
  if (error && !found) return html`<h1>Expectations</h1><${Failure} error=${error} what="The expectations" again=${reload}/>`;
  if (!found) return html`<h1>Expectations</h1><${Loading}/>`;
  const all = [...found.named, ...found.runs];
  const late = all.filter((item) => item.state === 'missed').length;
  const matches = ({ name }) => name.toLowerCase().includes((query.q ?? '').toLowerCase());
  const none = (words) => html`<${Empty}>${query.q ? 'No name matches.' : words}</${Empty}>`;
  return html`<div class="head"><h1>Expectations</h1><p class="lead">${late ? html`<span class="mark bad">${plural(late, 'expectation')}</span> ${late === 1 ? 'is' : 'are'} overdue.` : all.length ? 'What is expected has come.' : 'Nothing is expected.'}</p></div>
    ${(query.q || all.length > SEARCHED) && html`<div class="filters"><input type="search" aria-label="Find by name" placeholder="name" value=${query.q ?? ''} onInput=${(event) => setQuery({ q: event.target.value })}/></div>`}
    <div class="grid"><${Card} title="Work outside" about="beats that other programs send; Copy as curl has the request of a beat"><div class="stacked"><${Table} caption="Named expectations" columns=${named(reload)} rows=${found.named.filter(matches)} keyOf=${(row) => row.name}
        empty=${none(html`Nothing outside is expected. <code>PUT /v1/expectations/NAME</code> with <code>every</code> and <code>within</code> expects beats of a backup, a crontab or a machine, and its <code>on_miss</code> says when they do not come.`)}/></div></${Card}>
      <${Card} title="Runs of schedules" about=${found.isCut ? `all that are overdue, and others of the first ${count(READ)} schedules by name` : 'schedules with expect'}><div class="stacked"><${Table} caption="Expected runs" columns=${RUNS} rows=${found.runs.filter(matches)} keyOf=${(row) => row.name} empty=${none('No schedule expects its runs.')}/></div></${Card}></div>`;
}
