// The slots of a worker: a square each, in its task's colour while it runs a job; a bar beyond 64.
import { html, styled } from '../lib/base.js';
import { count, duration, instant, now } from '../lib/format.js';
import { taskColor } from '../lib/task_color.js';

const SQUARES = 64;

// "3 send, 1 resize", the most frequent first.
export function byTask(runs) {
  const counts = new Map();
  for (const { task } of runs) counts.set(task, (counts.get(task) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]);
}

const titleOf = (run) => `${run.job}: ${run.task}, since ${duration(now() - instant(run.started_at))}`;

export function Slots({ worker }) {
  const { slots, running, runs = [] } = worker;
  const tasks = byTask(runs).slice(0, 4).map(([task, number]) => `${number} ${task}`).join(', ');
  const label = `${count(running)} of ${count(slots)} slots busy${tasks ? `: ${tasks}` : ''}`;
  if (slots > SQUARES) {
    return html`<span class="bar" role="img" aria-label=${label} title=${label}><i ref=${styled({ width: `${Math.min(100, (running / slots) * 100)}%`, background: 'var(--st-running)' })}></i></span>`;
  }
  const filled = Math.max(running, runs.length);
  return html`<span class="slots" role="img" aria-label=${label}>${Array.from({ length: Math.max(slots, filled) }, (_, at) => {
    const run = runs[at];
    if (at >= filled) return html`<i key=${at} ref=${styled({ background: '' })}></i>`;
    return html`<i key=${at} class="on" title=${run ? titleOf(run) : 'busy'} ref=${styled({ background: run ? taskColor(run.task) : 'var(--st-running)' })}></i>`;
  })}</span>`;
}

// Which colour is which task, for the tasks that run now.
export function TaskLegend({ workers, most = 8 }) {
  const tasks = byTask(workers.flatMap((worker) => worker.runs ?? [])).slice(0, most).map(([task]) => task).sort();
  return html`<p class="legend">${tasks.map((task) => html`<span key=${task}><i ref=${styled({ background: taskColor(task) })}></i>${task}</span>`)}</p>`;
}
