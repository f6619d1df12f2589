// One schedule: when it fires next, what was decided about each instant, how its runs ended, and what is expected.
import { get } from '../lib/api.js';
import { html, useEffect, useState } from '../lib/base.js';
import { clock, count, duration, instant, iso, micros, now } from '../lib/format.js';
import { legible } from '../lib/legible.js';
import { go, isAt, link, place } from '../lib/router.js';
import { DECISIONS, bodyOf, healthOf, ruleOf, verdictOf } from '../lib/schedules.js';
import { getWritten } from '../lib/written.js';
import { clockIn } from '../lib/zones.js';
import { Ledger, Sign } from '../charts/ledger.js';
import { RunBars, runTimes } from '../charts/run_bars.js';
import { CopyAs } from '../parts/action.js';
import { Card, Empty, Loading, Since, Time, useData } from '../parts/basics.js';
import { Crumbs } from '../parts/crumbs.js';
import { Fires } from '../parts/fires.js';
import { useFollowed } from '../parts/followed.js';
import { Outcomes } from '../parts/outcomes.js';
import { Payload } from '../parts/payload.js';
import { ScheduleActions, pathOf } from '../parts/schedule_actions.js';
import { ScheduleFailure } from '../parts/schedule_failure.js';
import { Facts } from './schedule/facts.js';

const YEAR_US = 365 * 86_400 * 1e6;
const DAY_US = 86_400 * 1e6;
const KEPT = 1_000; // decisions that the server keeps of a schedule, if they are not too old
const PAGE = 500;
const LISTED = 100;
const RUNS = 100;
const BARS = 60;
const MARKS = 4;

async function read(name) {
  const part = pathOf(name);
  const [schedule, decisions, jobs] = await Promise.all([
    getWritten(part), readDecisions(part), get('/v1/jobs', { query: { schedule: name, limit: RUNS } }),
  ]);
  return { schedule, decisions, jobs: jobs.items };
}

// All decisions, newest first.
async function readDecisions(part) {
  const items = [];
  let cursor;
  do {
    const page = await get(`${part}/decisions`, { query: { limit: PAGE, cursor } });
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor);
  return items;
}

// The fires of a year, as far as the server lists them, for the ledger's next day and the marks of clock changes.
const readFires = (name) => get(`${pathOf(name)}/fires`, { query: { from: iso(now()), to: iso(now() + YEAR_US) } });

// One of the next fires, with what its own zone shows and the instant of its run; the first one counts down.
function Coming({ at, next, jitter, own, tz, isFirst }) {
  const there = clockIn(tz, instant(at));
  return html`<li class=${isFirst ? 'first' : ''}><${Fires} at=${at} next=${next} jitter=${jitter}/>${isFirst && html` <span>${instant(at) > now() ? html`in <${Since} at=${at}/>` : 'now'}</span>`}${own && html` <span class="muted small">its run: <span class="mono">${clock(instant(at) + micros(own))}</span></span>`}${
    there === clock(instant(at)) ? '' : html` <span class="muted small"><span class="mono">${there}</span> in ${tz}</span>`}</li>`;
}

function Next({ schedule, fires }) {
  const { tz, next_fires: next, paused, note } = schedule;
  const marks = (fires?.items ?? []).filter((fire) => fire.clock_change).slice(0, MARKS);
  const jitter = micros(schedule.jitter ?? '');
  const own = new Map((fires?.items ?? []).map((fire) => [fire.at, fire.jitter]));
  return html`${paused && html`<p><span class="mark warn">Paused.</span> ${legible(note ?? 'There is no note.')}</p>`}
    ${next.length > 0 && html`<ul class="fires">${next.map((at, place) => html`<${Coming} key=${at} at=${at} next=${next[place + 1]} jitter=${jitter} own=${own.get(at)} tz=${tz} isFirst=${!place}/>`)}</ul>`}
    ${!paused && !next.length && html`<p class="mark warn">It never fires again.</p>`}
    ${marks.length > 0 && html`<h3 class="small">When the clock changes</h3><ul class="fires">${marks.map((fire) => html`<li key=${fire.at}><span class="dst" aria-hidden="true">⌁</span> <${Time} at=${fire.at} full/> <span class="muted">${fire.clock_change}</span></li>`)}</ul>`}
    ${schedule.warnings.filter((text) => next.length || !text.startsWith('it will not')).map((text) => html`<p class="mark warn small">${text}</p>`)}`;
}

function Expectation({ schedule: { expect, expectation: kept } }) {
  if (!expect) return html`<${Empty}>Nothing is expected of its runs. With <code>expect</code>, it says when a run does not come.</${Empty}>`;
  const wants = [expect.within && `a completed run within ${expect.within} of each instant`, expect.max_duration && `a run of at most ${expect.max_duration}`].filter(Boolean).join(' and ');
  return html`<p>${wants[0].toUpperCase() + wants.slice(1)}.</p>${kept && html`<dl class="facts">
    <dt>State</dt><dd><span class=${`mark ${kept.state === 'ok' ? 'ok' : 'bad'}`}>${kept.state === 'ok' ? 'met' : 'overdue'}</span> for <${Since} at=${kept.since}/></dd>
    <dt>Last kept</dt><dd><${Time} at=${kept.kept_at}/></dd><dt>Due by</dt><dd><${Time} at=${kept.limit_at}/></dd>
    <dt>Missed</dt><dd>${count(kept.missed)} times</dd></dl>`}`;
}

function LastFailure({ failure }) {
  return failure ? html`<div class="failure"><b>The last failure</b> <a href=${link(`/jobs/${failure.job}`)}><${Time} at=${failure.at}/></a><br/>${failure.type ?? ''}${failure.message ? `: ${legible(failure.message)}` : ''}</div>` : null;
}

function Decisions({ items }) {
  return html`<div class="table decisions" role="region" aria-label="List of decisions" tabindex="0"><table><thead><tr><th scope="col">Scheduled for</th><th scope="col">Decision</th><th scope="col" class="num">Later</th><th scope="col">Job</th></tr></thead>
    <tbody>${items.map((item) => { const verdict = verdictOf(item); const known = DECISIONS[verdict]; return html`
      <tr key=${item.scheduled_for + item.decision + item.decided_at}><td><${Time} at=${item.scheduled_for}/></td><td title=${known?.means}><${Sign} name=${verdict}/> ${known?.word ?? verdict}${item.count > 1 ? ` × ${count(item.count)}` : ''}</td>
        <td class="num">${item.decision === 'manual' ? '' : duration(Math.max(0, instant(item.decided_at) - instant(item.scheduled_for)))}</td>
        <td>${item.job ? html`<a class="mono" href=${link(`/jobs/${item.job}`)}>${item.job}</a>` : ''}</td></tr>`; })}</tbody></table></div>`;
}

const lateness = (decisions) => decisions.filter((each) => each.decision === 'fired' && each.job).slice(0, BARS).reverse()
  .map((each) => ({ job: each.job, at: instant(each.scheduled_for), value: instant(each.decided_at) - instant(each.scheduled_for) }));

function Head({ schedule, reload }) {
  const { word, tone } = healthOf(schedule);
  const body = bodyOf(schedule);
  const request = { method: 'PUT', path: pathOf(schedule.name), body };
  const here = place.peek();
  return html`<${Crumbs} items=${[{ text: 'Schedules', href: link('/schedules') }, { text: schedule.name }]}/>
    <div class="head"><h1 class="wrap">${schedule.name}</h1><span class=${`mark ${tone}`}>${word}</span>
      <span class="muted"><code>${ruleOf(schedule)}</code>${schedule.every ? '' : ` ${schedule.tz}`} · ${schedule.description}</span>
      <div class="acts"><${ScheduleActions} schedule=${schedule} reload=${reload} onDeleted=${() => isAt(here) && go(link('/schedules'))}/>
        <${CopyAs} request=${request} others=${{ json: JSON.stringify(body, null, 2) }}/></div></div>`;
}

export default function Schedule({ params: { name } }) {
  const [isThere, setThere] = useState(false); // the stream refuses a name that does not exist
  const [found, error, reload] = useFollowed(() => read(name), isThere ? [`schedule:${name}`] : [], ['schedule', 'jobs'], [name]);
  useEffect(() => setThere(Boolean(found)), [Boolean(found)]);
  const [fires] = useData(() => readFires(name), [name, found?.schedule.updated_at]);
  if (error && (!found || error.status === 404)) return html`<${ScheduleFailure} title=${name} name=${name} error=${error} reload=${reload}/>`;
  if (!found) return html`<h1 class="wrap">${name}</h1><${Loading}/>`;
  const { schedule, decisions, jobs } = found;
  const failedJobs = new Set(jobs.filter((job) => job.state === 'failed').map((job) => job.id));
  const coming = schedule.paused ? [] : (fires?.items ?? []).map((fire) => ({ at: instant(fire.at), jitter: micros(fire.jitter ?? '') })).filter(({ at }) => at > now() && at < now() + DAY_US);
  const times = runTimes(jobs).slice(-BARS);
  const late = lateness(decisions);
  return html`<${Head} schedule=${schedule} reload=${reload}/><div class="grid">
    <div class="c8 stack flat"><${Card} title="Ledger" about=${`a row is a day, a column an hour of ${schedule.tz}; each sign says what was decided`}>
      <${Ledger} schedule=${schedule} decisions=${decisions} isCut=${decisions.length >= KEPT} fires=${coming} failedJobs=${failedJobs}/></${Card}>
      <${Card} title="Run times" about="a bar is a run, the newest at the right; heights are logarithmic" more=${{ href: link('/stats', { by: 'schedule', name }), text: 'by hours and days' }}>${times.length ? html`<${RunBars} runs=${times} what="Run time"/>` : html`<${Empty}>No run has ended yet.</${Empty}>`}</${Card}>
      <${Card} title="Lateness" about="how long after its instant each run was made">${late.length ? html`<${RunBars} runs=${late} what="Lateness"/>` : html`<${Empty}>It has not fired yet.</${Empty}>`}</${Card}>
      <${Card} title="Decisions" about="newest first">${decisions.length ? html`<${Decisions} items=${decisions.slice(0, LISTED)}/>` : html`<${Empty}>Nothing was decided yet.</${Empty}>`}</${Card}></div>
    <div class="c4 stack flat first"><${Card} title="Next"><${Next} schedule=${schedule} fires=${fires}/></${Card}>
      <${Card} title="Last runs" more=${{ href: link('/jobs', { schedule: name }), text: 'all runs' }}><${Outcomes} runs=${schedule.runs.last} isLinked/><${LastFailure} failure=${schedule.runs.last_failure}/></${Card}>
      <${Card} title="Expected"><${Expectation} schedule=${schedule}/></${Card}><${Card} title="Facts"><${Facts} schedule=${schedule}/></${Card}>
      ${schedule.payload !== null && html`<${Card} title="Payload"><${Payload} value=${schedule.payload} label="Payload of its runs"/></${Card}>`}</div></div>`;
}
