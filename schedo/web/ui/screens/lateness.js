// Lateness of the last 15 minutes or 24 hours, by kind of start, and how long the jobs of a queue were due.
import { get } from '../lib/api.js';
import { html, useEffect } from '../lib/base.js';
import { count, duration, percent, plural, round } from '../lib/format.js';
import { loadSummary, summary, useEvent, useLive } from '../lib/live.js';
import { link, setQuery } from '../lib/router.js';
import { drawn, failed, loadSeries, read, series } from '../lib/series.js';
import { LateMap } from '../charts/late_map.js';
import { TimeChart } from '../charts/time_chart.js';
import { Card, Empty, Failure, Loading, useData, useEvery } from '../parts/basics.js';
import { Crumbs } from '../parts/crumbs.js';
import { Choice } from '../parts/choice.js';

const KINDS = { all: ['timer', 'submit'], timer: ['timer'], submit: ['submit'] };
const NAMES = { all: 'all', timer: 'timers', submit: 'immediate' };
const WINDOWS = { '15m': '15 minutes', '24h': '24 hours' };
const AGAIN_MS = 60_000; // minutes are measured once a minute
const SECOND = 1e6;

// The last day is read again each minute; the last 15 minutes follow the ticks.
function useDay(path, isWanted) {
  const [found, error, reload] = useData(async () => (isWanted ? read(await get(path)) : null), [path, isWanted]);
  useEvent('missed', reload, [path]);
  useEvery(AGAIN_MS, () => { if (isWanted) reload(); }, [path, isWanted]);
  return [found, error, reload];
}

function Picture({ data, error, reload, kinds, window }) {
  if (error && !data) return html`<${Failure} error=${error} what="The figures" again=${reload}/>`;
  if (!data) return html`<${Loading}/>`;
  return html`<${LateMap} data=${data} version=${drawn.value} kinds=${kinds} objective=${summary.value.objective.lateness_us} height=${340}
    columnSeconds=${window === '24h' ? data.step / SECOND : 6} span=${WINDOWS[window]}/>
    <p class="small muted">${missing(data)}</p>`;
}

// Say what the hatched part is, in words.
function missing(data) {
  const none = data.figures.started.filter((value) => value === null).length;
  return none > 4 ? `Hatched: for ${duration(none * data.step)} there are no figures, because no server ran.` : '';
}

function Kinds() {
  const { lateness, objective } = summary.value;
  const row = (kind, name) => {
    const { p50_us: p50, p99_us: p99, recent, day } = lateness[kind];
    return html`<tr><th scope="row">${name}</th><td class="num">${p50 === null ? '–' : duration(p50)}</td><td class="num">${p99 === null ? '–' : duration(p99)}</td>
      <td class="num">${recent.starts ? percent(recent.share) : '–'}</td><td class="num">${day.starts ? percent(day.share) : '–'}</td>
      <td class="num">${day.starts ? `${Math.max(0, Math.round(day.budget_left * 100))} %` : '–'}</td></tr>`;
  };
  return html`<${Card} title="The objective" span=${6} about=${`99.9 % of the starts within ${round(objective.lateness_us)}`}><div class="table dense" role="group" aria-label="The objective by kind" tabindex="0"><table>
    <thead><tr><td></td><th scope="col" class="num">Median</th><th scope="col" class="num">p99</th><th scope="col" class="num">Within, 5 min</th><th scope="col" class="num">Within, 24 h</th><th scope="col" class="num">Budget left</th></tr></thead>
    <tbody>${row('timer', 'Timers')}${row('submit', 'Immediate jobs')}</tbody></table></div>
    <p class="small muted">Timers are jobs that waited for an instant. Immediate jobs were due when they were submitted, so the commit belongs to their lateness.</p></${Card}>`;
}

function Queue({ names, chosen }) {
  const known = names.length > 0;
  const [data, error, reload] = useDay(`/v1/timeseries?window=24h&queue=${encodeURIComponent(chosen)}`, known);
  return html`<${Card} title="By queue" span=${6} about="p99 of how long its jobs were due when they started"
    actions=${known && html`<select class="inline" aria-label="Queue" value=${chosen} onChange=${(event) => setQuery({ queue: event.target.value })}>${names.map((name) => html`
      <option value=${name} selected=${name === chosen}>${name === 'other' ? 'all other queues' : name}</option>`)}</select>`}>${queueContent(known, data, error, reload, chosen)}</${Card}>`;
}

function queueContent(known, data, error, reload, chosen) {
  if (!known && failed.value) return html`<${Failure} error=${failed.value} what="The queues" again=${loadSeries}/>`;
  if (!known) return html`<${Empty}>No queue has been measured yet.</${Empty}>`;
  if (error && !data) return html`<${Failure} error=${error} what="The queue" again=${reload}/>`;
  if (!data) return html`<${Loading}/>`;
  const x = data.figures.started.map((_, at) => (data.start + at * data.step) / SECOND);
  const last = data.figures.delay_p99_us.findLast((value) => value !== null);
  const label = `Queue ${chosen}: ${plural(data.figures.started.reduce((sum, value) => sum + (value ?? 0), 0), 'start')} in 24 hours, delay p99 at last ${last === undefined ? 'unknown' : duration(last)}`;
  return html`<${TimeChart} x=${x} lines=${[{ label: 'delay p99', color: '--st-queued', values: data.figures.delay_p99_us, fill: true }]} height=${180} format=${round} label=${label}/>
    <p class="small muted">${label}. <a href=${link('/jobs', { queue: chosen })}>Its jobs</a></p>`;
}

export default function Lateness({ query }) {
  useLive(['tick']);
  const window = WINDOWS[query.window] ? query.window : '15m';
  const starts = KINDS[query.starts] ? query.starts : 'all';
  const isDay = window === '24h';
  const [day, error, reload] = useDay('/v1/timeseries?window=24h', isDay);
  useEffect(() => { loadSeries(); loadSummary(); }, []);
  drawn.value;
  if (!summary.value) return html`<h1>Lateness</h1><${Loading}/>`;
  const names = (isDay ? day : series.peek())?.queues ?? [];
  return html`<${Crumbs} items=${[{ text: 'Overview', href: link('/') }, { text: 'Lateness' }]}/>
    <div class="head"><h1>Lateness</h1><div class="acts">
      <${Choice} label="Window" names=${WINDOWS} chosen=${window} set=${(key) => setQuery({ window: key === '15m' ? '' : key })}/>
      <${Choice} label="Which starts" names=${NAMES} chosen=${starts} set=${(key) => setQuery({ starts: key === 'all' ? '' : key })}/></div></div>
    <div class="grid"><${Card} title="How late jobs start" about=${isDay ? `a column is ${round(day?.step ?? 3e8)}` : 'a column is 6 s'}>
      <${Picture} data=${isDay ? day : series.peek()} error=${isDay ? error : failed.value} reload=${isDay ? reload : loadSeries} kinds=${KINDS[starts]} window=${window}/></${Card}>
      <${Kinds}/><${Queue} names=${names} chosen=${names.includes(query.queue) ? query.queue : names[0] ?? ''}/></div>`;
}
