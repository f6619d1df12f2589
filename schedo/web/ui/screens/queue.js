// One queue: how full it is, what waits and since when, and how it went in the last 24 hours.
import { get } from '../lib/api.js';
import { html } from '../lib/base.js';
import { count, duration, minuteOf } from '../lib/format.js';
import { listJobs } from '../lib/job_list.js';
import { due, later, rateOf, readSeriesIfAny, timeToClear } from '../lib/queues.js';
import { link } from '../lib/router.js';
import { TimeChart } from '../charts/time_chart.js';
import { CopyAs } from '../parts/action.js';
import { Card, Empty, Failure, Gauge, Loading, Since, Time, useData } from '../parts/basics.js';
import { State } from '../parts/state.js';
import { Crumbs } from '../parts/crumbs.js';
import { useFollowed } from '../parts/followed.js';
import { Limit, QueueActions, emptyQueue, number, pathOf } from '../parts/queue_actions.js';
import { Table } from '../parts/table.js';
import { Later } from '../parts/later_jobs.js';
import { TableToggle } from '../parts/table_toggle.js';
import { Pause } from './queues.js';

const JOBS = 20;

// A queue without jobs and limits is in no list, but it can be paused and limited.
async function read(name) {
  const [queues, jobs, waiting] = await Promise.all([
    get('/v1/queues'), listJobs({ queue: name, state: 'running', limit: JOBS }), listJobs({ queue: name, state: 'queued', limit: JOBS }),
  ]);
  return { queue: queues.items.find((each) => each.name === name) ?? emptyQueue(name), jobs: [...jobs.items, ...waiting.items], isPartial: waiting.partial };
}

function Facts({ queue, rate, reload }) {
  const clear = timeToClear(queue, rate);
  return html`<dl class="facts big"><div><dt>Running</dt><dd>${count(queue.running)} <small>of <${Limit} queue=${queue} field="concurrency" label="concurrency" shown=${queue.concurrency ?? '∞'} read=${number} reload=${reload}/></small><${Gauge} queue=${queue}/></dd></div>
    <div><dt>Due, waiting</dt><dd>${count(due(queue))} <small><${Later} queue=${queue} text=${`+ ${count(later(queue))} later`}/></small></dd></div>
    <div><dt>Oldest waits</dt><dd>${queue.oldest_due_at ? html`<${Since} at=${queue.oldest_due_at}/>` : '–'}</dd></div>
    <div><dt>Started, 15 min</dt><dd>${rate === null || rate === undefined ? '–' : rate.toFixed(rate < 10 ? 2 : 0)} <small>a second</small></dd></div>
    <div><dt>Clear in</dt><dd>${clear === 0 ? '–' : clear === null ? html`<small>not known</small>` : duration(clear)}</dd></div>
    <div><dt>Weight</dt><dd><small><${Limit} queue=${queue} field="weight" label="weight" shown=${queue.weight} read=${(text) => number(text) ?? undefined} reload=${reload}/></small></dd></div></dl>`;
}

const rateText = (value, step) => (value === null ? '–' : (value / (step / 1e6)).toFixed(2));

function Charts({ series }) {
  const { start, step } = series;
  const x = series.started.map((_, at) => (start + at * step) / 1e6);
  const perSecond = (values) => values.map((value) => (value === null ? null : value / (step / 1e6)));
  const rows = () => x.map((at, place) => [minuteOf(at * 1e6), rateText(series.started[place], step), rateText(series.submitted[place], step), count(series.due[place]), series.delay[place] === null ? '–' : duration(series.delay[place])]).reverse();
  return html`<${Card} title="Started and submitted" span=${6} about="a second, the last 24 hours; dashed: submitted">
      <${TimeChart} x=${x} label="Started and submitted jobs a second in the last 24 hours" lines=${[{ label: 'started', color: '--st-running', fill: true, values: perSecond(series.started) }, { label: 'submitted', color: '--faint', dash: [3, 3], width: 1.25, values: perSecond(series.submitted) }]}/>
      <div class="foot"><span></span><${TableToggle} caption="The last 24 hours" head=${['From', 'Started /s', 'Submitted /s', 'Due', 'Delay p99']} rows=${rows}/></div></${Card}>
    <${Card} title="Due, waiting" span=${6} about="the most in 5 minutes"><${TimeChart} x=${x} label="Due jobs in the last 24 hours" lines=${[{ label: 'due', color: '--st-queued', fill: true, values: series.due }]}/></${Card}>`;
}

const COLUMNS = [
  { title: 'Job', cell: (job) => html`<a class="mono" href=${link(`/jobs/${job.id}`)}>${job.id}</a>` },
  { title: 'State', className: 'health', cell: (job) => html`<${State} state=${job.state}/>` },
  { title: 'Task', cell: (job) => job.task },
  { title: 'Since', cell: (job) => html`<${Since} at=${job.started_at && job.state === 'running' ? job.started_at : job.scheduled_at}/>` },
  { title: 'Due', className: 'wide', cell: (job) => html`<${Time} at=${job.scheduled_at}/>` },
  { title: 'Worker', className: 'wide', cell: (job) => (job.worker ? html`<a href=${link(`/workers/${encodeURIComponent(job.worker)}`)}>${job.worker}</a>` : html`<span class="muted">–</span>`) },
];

export default function Queue({ params: { name } }) {
  const [found, error, reload] = useFollowed(() => read(name), ['queues'], ['queues'], [name]);
  const [series] = useData(() => readSeriesIfAny(name), [name]);
  if (error && !found) return html`<h1 class="wrap">${name}</h1><${Failure} error=${error} what="The queue" again=${reload}/>`;
  if (!found) return html`<h1 class="wrap">${name}</h1><${Loading}/>`;
  const { queue, jobs, isPartial } = found;
  const request = { method: 'PATCH', path: pathOf(name), body: { concurrency: queue.concurrency, weight: queue.weight, priority_step: queue.priority_step } };
  return html`<${Crumbs} items=${[{ text: 'Queues', href: link('/queues') }, { text: name }]}/>
    <div class="head"><h1 class="wrap">${name}</h1>${queue.paused ? html`<${Pause} pause=${queue.pause}/>` : html`<span class="mark ok">open</span>`}
      <div class="acts"><a class="btn" href=${link('/stats', { by: 'queue', name })}>Hours and days</a><${QueueActions} queue=${queue} reload=${reload}/><${CopyAs} request=${request}/></div></div>
    <div class="grid"><section class="card c12" aria-label="Figures"><${Facts} queue=${queue} rate=${series && rateOf(series)} reload=${reload}/></section>
      ${series && series.started.some((value) => value !== null) && html`<${Charts} series=${series}/>`}
      <${Card} title="Running and due" about=${`the newest ${JOBS} of each`} more=${{ href: link('/jobs', { queue: name }), text: 'all jobs' }}><div class="stacked">
        <${Table} caption="Running and due jobs" columns=${COLUMNS} rows=${jobs} keyOf=${(job) => job.id} empty=${html`<${Empty}>${isPartial ? 'No job of it runs. Those that are due are older than many other jobs.' : 'No job of it runs or is due.'}</${Empty}>`}/></div></${Card}></div>`;
}
