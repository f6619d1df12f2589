// All schedules: what fires next, how the last runs ended, and what a person must look at.
import { get } from '../lib/api.js';
import { html, useRef, useState } from '../lib/base.js';
import { clock, count, duration, instant, now, plural } from '../lib/format.js';
import { legible } from '../lib/legible.js';
import { may } from '../lib/me.js';
import { link, setQuery } from '../lib/router.js';
import { healthOf, medianRun, ruleOf } from '../lib/schedules.js';
import { clockIn } from '../lib/zones.js';
import { Empty, Failure, Loading, Since, Time } from '../parts/basics.js';
import { useFollowed } from '../parts/followed.js';
import { Outcomes } from '../parts/outcomes.js';
import { hrefOf, ScheduleActions } from '../parts/schedule_actions.js';
import { Table } from '../parts/table.js';

const READ = 100; // schedules, by name; others are on the next page
const READ_FIELDS = 'name,task,queue,cron,every,at,tz,description,jitter,paused,note,next_fires,runs,median_run,expect,expectation,health';
const HEALTHS = { '': 'all', failing: 'failing', overdue: 'overdue', paused: 'paused', ended: 'never fires' };

// The next fire counts down; after it the stream tells the one that follows.
function Next({ schedule }) {
  const [at] = schedule.next_fires;
  const note = legible(schedule.note ?? '');
  if (schedule.paused) return html`<span class="muted note" title=${note}>paused${note && `: ${note}`}</span>`;
  if (!at) return html`<span class="muted">never again</span>`;
  const isFuture = instant(at) > now();
  return html`<${Time} at=${at}/>${schedule.jitter && html`<span class="spread" title=${`Its run is due up to ${schedule.jitter} later`}> +${schedule.jitter}</span>`} <span class="muted small">${isFuture ? html`in <${Since} at=${at}/>` : 'now'}</span>`;
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
  { title: 'Last runs', className: 'runs', cell: (row) => html`<${Outcomes} runs=${row.runs.last}/>` },
  { title: 'Median run', number: true, className: 'rare', cell: (row) => { const found = medianRun(row); return found === null ? html`<span class="muted">–</span>` : duration(found); } },
  { title: 'Expected', className: 'rare', cell: (row) => (row.expect ? html`<span class=${row.expectation?.state === 'missed' ? 'mark bad' : 'muted'}>${row.expect.within ? `within ${row.expect.within}` : `runs at most ${row.expect.max_duration}`}</span>` : html`<span class="muted">–</span>`) },
  { title: 'State', className: 'health', cell: (row) => html`<${State} schedule=${row}/>` },
];

const MANY = 1_000; // of one state: there are more than that if their number is null

// A change of filters goes back to the first page.
const change = (changes) => setQuery({ ...changes, cursor: '' });

const number = (value) => (value === null ? `${count(MANY)}+` : count(value));

function Filters({ query, counts }) {
  return html`<div class="filters"><input type="search" aria-label="Find by name, task or queue" placeholder="name, task or queue" value=${query.q ?? ''}
      onInput=${(event) => change({ q: event.target.value })}/>
    <div class="seg" role="group" aria-label="State">${Object.entries(HEALTHS).map(([name, word]) => html`
      <button aria-pressed=${(query.health ?? '') === name} onClick=${() => change({ health: name })}>${word}${counts && html` <span class="muted">${number(counts[name || 'total'])}</span>`}</button>`)}</div></div>`;
}

const soonest = (one, other) => (one.next_fires[0] ?? '~').localeCompare(other.next_fires[0] ?? '~') || one.name.localeCompare(other.name);
const RANK = { overdue: 0, failing: 1 };
const gravest = (one, other) => (RANK[healthOf(one).name] ?? 9) - (RANK[healthOf(other).name] ?? 9) || soonest(one, other);

// The order of rows stays while one of them is pointed at or has the focus of the keyboard: a click must not reach another schedule.
function useSteady(rows, box) {
  const shown = useRef(new Map()); // name -> place
  const placeOf = ({ name }) => shown.current.get(name) ?? Infinity;
  const found = box.current?.matches(':hover, :has(:focus-visible)') ? rows.toSorted((one, other) => placeOf(one) - placeOf(other) || 0) : rows;
  shown.current = new Map(found.map(({ name }, place) => [name, place]));
  return found;
}

const New = () => may('put_schedule') && html`<a class="btn primary" href=${link('/schedules/-new')}>New schedule</a>`;

const sayWell = ({ total, paused }) => (paused ? `Of ${plural(total, 'schedule')}, ${number(paused)} ${paused === 1 ? 'is' : 'are'} paused; the others are well.`
  : total === 1 ? 'The only schedule is well.' : `All ${count(total)} schedules are well.`);

// The first sentence of the screen: what is wrong, else what comes. isWhole: items are all schedules.
function Sentence({ items, counts, isWhole }) {
  if (!counts?.total) return null;
  const bad = counts.overdue + (counts.failing ?? MANY);
  if (bad) return html`<p class="lead"><span class="mark bad">${plural(bad, 'schedule')}${counts.failing === null ? ' and more' : ''}</span> of ${count(counts.total)} ${bad === 1 ? 'fails or is' : 'fail or are'} overdue.</p>`;
  const [next] = isWhole ? items.filter((item) => item.next_fires.length && !item.paused).sort(soonest) : [];
  return html`<p class="lead">${sayWell(counts)}${next && html` Next is <a href=${hrefOf(next.name)}>${next.name}</a> at ${clock(instant(next.next_fires[0]))}.`}</p>`;
}

// A page by name. What is wrong comes before the first page of a list that is longer.
async function read({ q, health, cursor }) {
  const list = (query) => get('/v1/schedules', { query: { q, limit: READ, fields: READ_FIELDS, ...query } });
  const page = await list({ health, cursor });
  if (!page.next_cursor || health || cursor) return page;
  const { overdue, failing } = page.counts;
  const wrong = await Promise.all([['overdue', overdue], ['failing', failing]].filter(([, number]) => number !== 0).map(([name]) => list({ health: name })));
  const items = new Map([...wrong.flatMap((each) => each.items), ...page.items].map((item) => [item.name, item]));
  return { ...page, items: [...items.values()] };
}

export default function Schedules({ query }) {
  const { q, health, cursor } = query;
  const [found, error, reload] = useFollowed(() => read(query), ['schedules'], ['schedules'], [q, health, cursor]);
  const [, leave] = useState(0); // the rows go to their places
  const box = useRef();
  const sorted = (found?.items ?? []).toSorted(gravest);
  const rows = useSteady(sorted, box);
  if (error && !found) return html`<h1>Schedules</h1><${Failure} error=${error} what="The schedules" again=${reload}/>`;
  if (!found) return html`<h1>Schedules</h1><${Loading}/>`;
  const { counts, next_cursor: next, looked_at: looked } = found;
  const columns = [...COLUMNS, { title: 'Actions', className: 'acts', cell: (row) => html`<${ScheduleActions} schedule=${row} small reload=${reload}/>` }];
  const isNone = counts?.total === 0;
  const nothing = isNone
    ? html`<${Empty}>There is no schedule yet. A schedule makes a job at each instant of its rule.</${Empty}>`
    : html`<${Empty}>No schedule matches${next ? ' so far' : ''}. <button class="btn small" onClick=${() => change({ q: '', health: '' })}>Show all</button></${Empty}>`;
  return html`<div class="head"><h1>Schedules</h1><${Sentence} items=${sorted} counts=${counts} isWhole=${!next && !q && !health}/><div class="acts"><${New}/></div></div>
    ${!isNone && html`<${Filters} query=${query} counts=${counts}/>`}
    <div class="card stacked" ref=${box} onMouseLeave=${() => leave((turn) => turn + 1)}><div class="body">
      <${Table} caption="Schedules" columns=${columns} rows=${rows} keyOf=${(row) => row.name} empty=${nothing}/>
      ${(next || cursor) && html`<p class="muted small">${looked ? `The search has passed ${count(looked)} schedules. ` : ''}${cursor && html`<button class="btn small" onClick=${() => change({})}>First page</button> `}
        ${next && html`<button class="btn small" onClick=${() => setQuery({ cursor: next }, { push: true })}>${looked ? 'Go on' : 'Next page, by name'}</button>`}</p>`}</div></div>`;
}
