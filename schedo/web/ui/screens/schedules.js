// All schedules: what fires next, how the last runs ended, and what a person must look at.
import { get } from '../lib/api.js';
import { html } from '../lib/base.js';
import { clock, count, duration, instant, now, plural } from '../lib/format.js';
import { may } from '../lib/me.js';
import { link, setQuery } from '../lib/router.js';
import { healthOf, medianRun, ruleOf } from '../lib/schedules.js';
import { clockIn } from '../lib/zones.js';
import { Empty, Failure, Loading, Since, Time } from '../parts/basics.js';
import { useFollowed } from '../parts/followed.js';
import { Outcomes } from '../parts/outcomes.js';
import { hrefOf, ScheduleActions } from '../parts/schedule_actions.js';
import { Table } from '../parts/table.js';

const READ = 500; // schedules, by name; more are said and not shown
const HEALTHS = { '': 'all', failing: 'failing', overdue: 'overdue', paused: 'paused', ended: 'never fires' };

// The next fire counts down; after it the stream tells the one that follows.
function Next({ schedule }) {
  const [at] = schedule.next_fires;
  if (schedule.paused) return html`<span class="muted note" title=${schedule.note}>paused${schedule.note ? `: ${schedule.note}` : ''}</span>`;
  if (!at) return html`<span class="muted">never again</span>`;
  const isFuture = instant(at) > now();
  return html`<${Time} at=${at}/> <span class="muted small">${isFuture ? html`in <${Since} at=${at}/>` : 'now'}</span>`;
}

// The schedule's own zone, and what its clock shows at the next fire.
function Zone({ schedule: { tz, every, next_fires: [at] } }) {
  if (every) return null;
  return html`<span class="muted">${tz}${at && tz !== 'UTC' ? html` <span class="mono small">${clockIn(tz, instant(at)).slice(0, 5)}</span>` : ''}</span>`;
}

function State({ schedule }) {
  const { word, tone } = healthOf(schedule);
  return html`<span class=${`mark ${tone}`}>${word}</span>`;
}

const COLUMNS = [
  { title: 'Schedule', className: 'cut name', cell: (row) => html`<a href=${hrefOf(row.name)} title=${row.name}>${row.name}</a>` },
  { title: 'Rule', className: 'cut rule', cell: (row) => html`<span title=${`${ruleOf(row)}: ${row.description}`}>${row.description ?? ruleOf(row)}</span>` },
  { title: 'Zone', className: 'zone', cell: (row) => html`<${Zone} schedule=${row}/>` },
  { title: 'Next', className: 'next', cell: (row) => html`<${Next} schedule=${row}/>` },
  { title: 'Last runs', className: 'runs', cell: (row) => html`<${Outcomes} runs=${row.recent ?? row.runs.last}/>` },
  { title: 'Median run', number: true, className: 'wide', cell: (row) => { const found = medianRun(row); return found === null ? html`<span class="muted">–</span>` : duration(found); } },
  { title: 'Expected', className: 'wide', cell: (row) => (row.expect ? html`<span class=${row.expectation?.state === 'missed' ? 'mark bad' : 'muted'}>${row.expect.within ? `within ${row.expect.within}` : `runs at most ${row.expect.max_duration}`}</span>` : html`<span class="muted">–</span>`) },
  { title: 'State', className: 'health', cell: (row) => html`<${State} schedule=${row}/>` },
];

function Filters({ query, items }) {
  const counts = new Map();
  for (const item of items) counts.set(healthOf(item).name, (counts.get(healthOf(item).name) ?? 0) + 1);
  const number = (name) => (name ? counts.get(name) ?? 0 : items.length);
  return html`<div class="filters"><input type="search" aria-label="Find by name, task or queue" placeholder="name, task or queue" value=${query.q ?? ''}
      onInput=${(event) => setQuery({ q: event.target.value })}/>
    <div class="seg" role="group" aria-label="State">${Object.entries(HEALTHS).map(([name, word]) => html`
      <button aria-pressed=${(query.health ?? '') === name} onClick=${() => setQuery({ health: name })}>${word} <span class="muted">${count(number(name))}</span></button>`)}</div></div>`;
}

const matches = (item, { q = '', health = '' }) => (!health || healthOf(item).name === health)
  && q.toLowerCase().split(/\s+/).every((word) => `${item.name} ${item.task} ${item.queue} ${item.description}`.toLowerCase().includes(word));

const soonest = (one, other) => (one.next_fires[0] ?? '~').localeCompare(other.next_fires[0] ?? '~') || one.name.localeCompare(other.name);
const RANK = { overdue: 0, failing: 1 };
const gravest = (one, other) => (RANK[healthOf(one).name] ?? 9) - (RANK[healthOf(other).name] ?? 9) || soonest(one, other);

const New = () => may('put_schedule') && html`<a class="btn primary" href=${link('/schedules/new')}>New schedule</a>`;

// The first sentence of the screen: what is wrong, else what comes.
function Sentence({ items }) {
  const bad = items.filter((item) => healthOf(item).tone === 'bad');
  if (bad.length) return html`<p class="lead"><span class="mark bad">${plural(bad.length, 'schedule')}</span> of ${count(items.length)} ${bad.length === 1 ? 'fails or is' : 'fail or are'} overdue.</p>`;
  const [next] = items.filter((item) => item.next_fires.length && !item.paused).sort(soonest);
  return next ? html`<p class="lead">All ${plural(items.length, 'schedule')} are well. Next is <a href=${hrefOf(next.name)}>${next.name}</a> at ${clock(instant(next.next_fires[0]))}.</p>` : null;
}

export default function Schedules({ query }) {
  const [found, error, reload] = useFollowed(() => get('/v1/schedules', { query: { limit: READ } }), ['schedules'], ['schedules'], []);
  if (error && !found) return html`<h1>Schedules</h1><${Failure} error=${error} what="The schedules" again=${reload}/>`;
  if (!found) return html`<h1>Schedules</h1><${Loading}/>`;
  const { items } = found;
  const rows = items.filter((item) => matches(item, query)).sort(gravest);
  const columns = [...COLUMNS, { title: 'Actions', className: 'acts', cell: (row) => html`<${ScheduleActions} schedule=${row} small reload=${reload}/>` }];
  const nothing = items.length
    ? html`<${Empty}>No schedule matches. <button class="btn small" onClick=${() => setQuery({ q: '', health: '' })}>Show all</button></${Empty}>`
    : html`<${Empty}>There is no schedule yet. A schedule makes a job at each instant of its rule.</${Empty}>`;
  return html`<div class="head"><h1>Schedules</h1><${Sentence} items=${items}/><div class="acts"><${New}/></div></div>
    ${items.length > 0 && html`<${Filters} query=${query} items=${items}/>`}
    <div class="card stacked"><div class="body">
      <${Table} caption="Schedules" columns=${columns} rows=${rows} keyOf=${(row) => row.name} empty=${nothing}/>
      ${found.next_cursor && html`<p class="muted small">These are the first ${count(items.length)} schedules by name. Others are found by ⌘K.</p>`}</div></div>`;
}
