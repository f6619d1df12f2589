// What ended over hours and days, by task, queue or schedule: how it ended, how long it ran, and how late it started.
import { html } from '../lib/base.js';
import { WINDOWS, readNames, readPoints } from '../lib/ends.js';
import { compact, count, day, duration, minuteOf, percent, plural, round } from '../lib/format.js';
import { link, setQuery } from '../lib/router.js';
import { TimeChart } from '../charts/time_chart.js';
import { CopyAs } from '../parts/action.js';
import { Card, Empty, Failure, Loading, useData, useEvery } from '../parts/basics.js';
import { Choice } from '../parts/choice.js';
import { Table } from '../parts/table.js';
import { TableToggle } from '../parts/table_toggle.js';

const BYS = { task: 'tasks', queue: 'queues', schedule: 'schedules' };
const AGAIN_MS = 60_000; // what ended is added up once a minute
const OTHER = '(other)';

const share = (ends) => (ends.failed ? html`<span class="mark bad">${percent(ends.failed_share)}</span>` : html`<span class="muted">–</span>`);
const time = (times, quantile) => (times ? duration(times[quantile]) : html`<span class="muted">–</span>`);
const amount = (number) => (number ? compact(number) : html`<span class="muted">0</span>`);
const longest = (times) => times?.p99_us ?? -1;

// What the names can be sorted by, most first; the server has those with the most ended jobs first.
const SORTS = {
  failed: (item) => item.failed, share: (item) => item.failed_share ?? -1, retried: (item) => item.retried,
  run: (item) => longest(item.run), late: (item) => longest(item.lateness),
};

const columns = (query, by) => [
  { title: by[0].toUpperCase() + by.slice(1), className: 'cut name', cell: ({ name }) => (name === OTHER ? html`<span class="muted" title="The first 200 names are counted by themselves">all others</span>`
    : html`<a href=${link('/stats', { ...query, name })} aria-current=${query.name === name ? 'true' : undefined} title=${name}>${name}</a>`) },
  { title: 'Completed', number: true, sort: 'ended', cell: (item) => amount(item.completed) },
  { title: 'Failed', number: true, sort: 'failed', cell: (item) => amount(item.failed) },
  { title: 'Failed, share', label: 'Share', number: true, sort: 'share', cell: share },
  { title: 'Cancelled', number: true, className: 'wide', cell: (item) => amount(item.cancelled) },
  { title: 'Expired', number: true, className: 'wide', cell: (item) => amount(item.expired) },
  { title: 'Attempts retried', label: 'Retried', number: true, className: 'wide', sort: 'retried', cell: (item) => amount(item.retried) },
  { title: 'Ran, median', number: true, className: 'wide', cell: (item) => time(item.run, 'p50_us') },
  { title: 'Ran, p99', number: true, sort: 'run', cell: (item) => time(item.run, 'p99_us') },
  { title: 'Late, median', number: true, className: 'wide', cell: (item) => time(item.lateness, 'p50_us') },
  { title: 'Late, p99', number: true, sort: 'late', cell: (item) => time(item.lateness, 'p99_us') },
];

// One sentence: how many ended, and how.
export function say({ completed, failed, cancelled, expired, failed_share: bad }, window) {
  const ended = completed + failed + cancelled + expired;
  if (!ended) return `No job ended in the last ${WINDOWS[window].text}.`;
  const others = [[cancelled, 'cancelled'], [expired, 'expired']].filter(([number]) => number).map(([number, word]) => `, ${count(number)} ${word}`).join('');
  return `${plural(ended, 'job')} ended in the last ${WINDOWS[window].text}: ${count(completed)} completed, ${count(failed)} failed${failed ? ` (${percent(bad)})` : ''}${others}.`;
}

const quantiles = (points, of) => [
  { label: 'p99', color: '--st-running', fill: true, values: points.map((point) => point?.[of]?.p99_us ?? null) },
  { label: 'median', color: '--faint', dash: [3, 3], width: 1.25, values: points.map((point) => point?.[of]?.p50_us ?? null) },
];

function Charts({ data, by, window, name }) {
  const { x, points, step, total } = data;
  const title = name || `All ${BYS[by]}`;
  if (!points.some(Boolean)) return html`<${Card} title=${title} id="ended"><${Empty}>${say(total, window)}</${Empty}></${Card}>`;
  const isDay = step >= 86_400;
  // Days begin at midnight in UTC.
  const tell = (micros) => (isDay ? new Date(micros / 1000).toISOString().slice(5, 10) : `${day(micros).slice(5)} ${minuteOf(micros)}`);
  const counts = (field) => points.map((point) => point?.[field] ?? 0);
  const lines = [{ label: 'completed', color: '--st-completed', fill: true, values: counts('completed') }, { label: 'failed', color: '--st-failed', values: counts('failed') }];
  const whose = name ? `${by} ${name}` : `all ${BYS[by]}`;
  const cell = (times) => (times ? duration(times.p99_us) : '–');
  const rows = () => points.map((point, at) => [tell(x[at] * 1e6), count(point?.completed ?? 0), count(point?.failed ?? 0), cell(point?.run), cell(point?.lateness)]).reverse();
  return html`<${Card} title=${title} id="ended" about=${isDay ? 'a point is a day (UTC)' : 'a point is an hour; green: completed, red: failed'}
      actions=${name && html`<a class="btn small" href=${link('/jobs', { [by]: name })}>Its jobs</a>${by !== 'task' && html` <a class="btn small" href=${link(`/${by}s/${encodeURIComponent(name)}`)}>The ${by}</a>`}`}>
      <p class="lead">${say(total, window)}</p><${TimeChart} x=${x} lines=${lines} tell=${tell} label=${`Jobs of ${whose} that ended: ${say(total, window)}`}/>
      <div class="foot"><span></span><${TableToggle} caption=${`Ended jobs of ${whose}`} head=${['From', 'Completed', 'Failed', 'Ran, p99', 'Late, p99']} rows=${rows}/></div></${Card}>
    <${Card} title="How long they ran" span=${6} about="p99 of an attempt; dashed: median"><${TimeChart} x=${x} lines=${quantiles(points, 'run')} format=${round} tell=${tell} label=${`Run time of ${whose}, p99 of the whole time ${cell(total.run)}`}/></${Card}>
    <${Card} title="How late they started" span=${6} about="p99, whatever they waited for; dashed: median"><${TimeChart} x=${x} lines=${quantiles(points, 'lateness')} format=${round} tell=${tell} label=${`Lateness of ${whose}, p99 of the whole time ${cell(total.lateness)}`}/></${Card}>`;
}

function Names({ query, by, window }) {
  const { q: text } = query;
  const wanted = { by, window, text };
  const [found, error, reload] = useData(() => readNames(wanted), [by, window, text]);
  useEvery(AGAIN_MS, reload, [by, window, text]);
  if (error && !found) return html`<${Failure} error=${error} what="What ended" again=${reload}/>`;
  if (!found) return html`<${Loading}/>`;
  const rows = SORTS[query.sort] ? found.items.toSorted((one, other) => SORTS[query.sort](other) - SORTS[query.sort](one)) : found.items;
  return html`<div class="stacked"><${Table} caption=${`Ended jobs by ${by}`} columns=${columns(query, by)} rows=${rows} keyOf=${(item) => item.name}
      sort=${{ by: query.sort || 'ended', descending: true }} onSort=${(sort) => setQuery({ sort: sort === 'ended' ? '' : sort })}
      empty=${html`<${Empty}>${text ? `No ${by} with this name had jobs that ended then.` : `No job${by === 'schedule' ? ' of a schedule' : ''} ended in the last ${WINDOWS[window].text}.`}</${Empty}>`}/></div>
    <p class="small muted">${found.has_more ? `These are the ${count(rows.length)} with the most ended jobs. ` : ''}Times are within ${Math.round(found.relative_error * 100)} %. What was pruned since then is counted, too.</p>`;
}

function Points({ by, window, name }) {
  const [data, error, reload] = useData(() => readPoints({ by, window, name }), [by, window, name]);
  useEvery(AGAIN_MS, reload, [by, window, name]);
  if (error && !data) return html`<div class="c12"><${Failure} error=${error} what="What ended" again=${reload}/></div>`;
  if (!data) return html`<div class="c12"><${Loading}/></div>`;
  return html`<${Charts} data=${data} by=${by} window=${window} name=${name}/>`;
}

export default function Stats({ query }) {
  const by = BYS[query.by] ? query.by : 'task';
  const window = WINDOWS[query.window] ? query.window : '7d';
  const { name } = query;
  return html`<div class="head"><h1>Ended jobs</h1><div class="acts">
      <${Choice} label="By" names=${BYS} chosen=${by} set=${(key) => setQuery({ by: key === 'task' ? '' : key, name: '', q: '' })}/>
      <${Choice} label="How far back" names=${Object.fromEntries(Object.entries(WINDOWS).map(([key, { text }]) => [key, text]))} chosen=${window} set=${(key) => setQuery({ window: key === '7d' ? '' : key })}/>
      <${CopyAs} request=${{ method: 'GET', path: '/v1/stats', query: { by, exact_name: name } }} others=${{ link: location.href }}/></div></div>
    <div class="grid">${name && html`<p class="c12 lead"><a href=${link('/stats', { ...query, name: '' })}>All ${BYS[by]} together</a></p>`}
      <${Points} by=${by} window=${window} name=${name} key=${`${by} ${name}`}/>
      <${Card} title=${`By ${by}`} id="names" about="the most ended jobs first; a name shows its own figures above"
        actions=${html`<form role="search" onSubmit=${(event) => event.preventDefault()}><input type="search" aria-label="Find by name" placeholder="name" value=${query.q ?? ''} onInput=${(event) => setQuery({ q: event.target.value })}/></form>`}>
        <${Names} query=${query} by=${by} window=${window} key=${by}/></${Card}></div>`;
}
