// One worker: what it runs, what it could run, and when it was seen last.
import { get } from '../lib/api.js';
import { html, styled } from '../lib/base.js';
import { count, plural } from '../lib/format.js';
import { link } from '../lib/router.js';
import { taskColor } from '../lib/task_color.js';
import { Card, Empty, Failure, Loading, Since, Tag, Time } from '../parts/basics.js';
import { Crumbs } from '../parts/crumbs.js';
import { useFollowed } from '../parts/followed.js';
import { Slots, TaskLegend } from '../parts/slots.js';
import { Table } from '../parts/table.js';
import { WorkerActions, pathOf } from '../parts/worker_actions.js';
import { Resources, WorkerState, silence } from './workers.js';

const COLUMNS = [
  { title: 'Job', cell: (run) => html`<a class="mono" href=${link(`/jobs/${run.job}`)}>${run.job}</a>` },
  { title: 'Task', cell: (run) => html`<i class="swatch" ref=${styled({ background: taskColor(run.task) })}></i>${run.task}` },
  { title: 'For', number: true, cell: (run) => html`<${Since} at=${run.started_at}/>` },
  { title: 'Started', number: true, cell: (run) => html`<${Time} at=${run.started_at}/>` },
];

const Names = ({ names, kind }) => (names ? names.map((name) => html`<a class="tag" href=${kind === 'queue' ? link(`/queues/${encodeURIComponent(name)}`) : link('/jobs', { task: name })}>${name}</a> `) : 'any');

function Facts({ worker }) {
  const labels = Object.entries(worker.labels);
  return html`<dl class="facts"><dt>Kind</dt><dd>${worker.kind}</dd><dt>Version</dt><dd>${worker.version ?? '–'}</dd>
    <dt>Connected</dt><dd><${Time} at=${worker.connected_at}/></dd>
    <dt>Last seen</dt><dd><${Time} at=${worker.last_seen_at}/> ${silence(worker) && html`<span class="mark warn">${silence(worker)}</span>`}</dd>
    ${worker.session_timeout && html`<dt>Lost after</dt><dd>${worker.session_timeout} of silence</dd>`}
    <dt>Labels</dt><dd>${labels.length ? labels.map(([name, value]) => html`<${Tag}>${name}=${String(value)}</${Tag}> `) : 'none'}</dd>
    <dt>Resources</dt><dd>${Object.keys(worker.resources).length ? html`<${Resources} worker=${worker}/>` : 'none'}</dd></dl>`;
}

const Takes = ({ worker }) => html`<dl class="facts"><dt>Tasks</dt><dd><${Names} names=${worker.tasks} kind="task"/></dd><dt>Queues</dt><dd><${Names} names=${worker.queues} kind="queue"/></dd></dl>`;

export default function Worker({ params: { name } }) {
  const [worker, error, reload] = useFollowed(() => get(pathOf(name)), ['workers'], ['workers'], [name]);
  if (error?.status === 404) return html`<h1 class="wrap">${name}</h1><${Empty}>No worker of this name is known. It left, or it never came. <a href=${link('/workers')}>All workers</a></${Empty}>`;
  if (error && !worker) return html`<h1 class="wrap">${name}</h1><${Failure} error=${error} what="The worker" again=${reload}/>`;
  if (!worker) return html`<h1 class="wrap">${name}</h1><${Loading}/>`;
  const { runs, running } = worker;
  return html`<${Crumbs} items=${[{ text: 'Workers', href: link('/workers') }, { text: name }]}/>
    <div class="head"><h1 class="wrap">${name}</h1><${WorkerState} worker=${worker}/><div class="acts"><${WorkerActions} worker=${worker} reload=${reload}/></div></div>
    <div class="grid"><div class="c8 stack"><${Card} title="Slots" about=${`${count(running)} of ${plural(worker.slots, 'slot')} busy`}><${Slots} worker=${worker}/><${TaskLegend} workers=${[worker]}/></${Card}>
      <${Card} title="Runs" about=${running > runs.length ? `the ${runs.length} that it has longest, of ${count(running)}` : 'those that it has longest first'} more=${{ href: link('/jobs', { worker: name }), text: 'all its jobs' }}>
        <div class="stacked"><${Table} caption="Running jobs" columns=${COLUMNS} rows=${runs} keyOf=${(run) => run.job} empty=${html`<${Empty}>It runs nothing.</${Empty}>`}/></div></${Card}></div>
    <div class="c4 stack"><${Card} title="Facts"><${Facts} worker=${worker}/></${Card}><${Card} title="What it takes"><${Takes} worker=${worker}/></${Card}></div></div>`;
}
