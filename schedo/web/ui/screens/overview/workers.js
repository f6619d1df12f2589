// Who works: a square is a slot, filled while it runs a job.
import { computed, html, signal, styled } from '../../lib/base.js';
import { compact } from '../../lib/format.js';
import { on, summary } from '../../lib/live.js';
import { link } from '../../lib/router.js';
import { taskColor } from '../../lib/task_color.js';
import { Card, Empty, Tag } from '../../parts/basics.js';

const SHOWN = 8;
const NAMED = 6; // tasks in the legend
const SQUARES = 64; // a worker with more slots has a bar
const changed = signal(new Map());
const gone = signal(new Set()); // names

// In a cluster each server has workers of its own, with the same names; a remote one is of all servers.
const keyOf = ({ name, kind, server = '' }) => (kind === 'remote' ? name : `${server} ${name}`);

on('workers', (data) => {
  const next = new Map(changed.peek());
  for (const worker of data.workers) next.set(keyOf(worker), worker);
  for (const [key, { name }] of next) if (data.gone.includes(name)) next.delete(key);
  const back = new Set(data.workers.map(({ name }) => name));
  changed.value = next;
  gone.value = new Set([...gone.peek(), ...data.gone].filter((name) => !back.has(name)));
});

const all = computed(() => {
  const known = new Map(summary.value.workers.map((worker) => [keyOf(worker), worker]));
  for (const [key, worker] of changed.value) known.set(key, { labels: {}, ...known.get(key), ...worker });
  return [...known.values()].filter((worker) => worker.slots && !gone.value.has(worker.name));
});

const tasksOf = (worker) => worker.running_tasks ?? countTasks(worker.runs ?? []);

function countTasks(runs) {
  const counts = {};
  for (const { task } of runs) counts[task] = (counts[task] ?? 0) + 1;
  return counts;
}

// The tasks that run in the slots, one each; a slot whose task is not listed has ''.
function fill(worker) {
  const filled = Object.entries(tasksOf(worker)).sort().flatMap(([task, number]) => new Array(number).fill(task));
  return [...filled, ...new Array(Math.max(0, worker.running - filled.length)).fill('')].slice(0, worker.running);
}

const colorOf = (task) => (task ? taskColor(task) : 'var(--st-running)');

function Slots({ worker }) {
  const { running, slots } = worker;
  const label = `${running} of ${slots} slots busy`;
  if (slots > SQUARES) {
    return html`<span class="bar" role="img" aria-label=${label}><i ref=${styled({ width: `${(running / slots) * 100}%`, background: 'var(--st-running)' })}></i></span>`;
  }
  const tasks = fill(worker);
  return html`<span class="slots" role="img" aria-label=${label}>${Array.from({ length: slots }, (_, at) => (at < tasks.length
    ? html`<i class="on" title=${tasks[at] || undefined} ref=${styled({ background: colorOf(tasks[at]) })}></i>`
    : html`<i ref=${styled({ background: '' })}></i>`))}</span>`;
}

function Legend({ workers }) {
  const counts = new Map();
  for (const worker of workers) {
    for (const [task, number] of Object.entries(tasksOf(worker))) counts.set(task, (counts.get(task) ?? 0) + number);
  }
  const most = [...counts].sort((one, other) => other[1] - one[1]).slice(0, NAMED).map(([task]) => task).sort();
  return html`<div class="legend" aria-live="off">${most.map((task) => html`<span key=${task}><i ref=${styled({ background: colorOf(task) })}></i>${task}</span>`)}</div>`;
}

function Row({ worker }) {
  const labels = Object.entries(worker.labels ?? {});
  const state = worker.state === 'active' ? worker.kind : worker.state;
  return html`<li class="worker"><div><a href=${link(`/workers/${encodeURIComponent(worker.name)}`)}>${worker.name}</a>
      <div class=${'small ' + (worker.state === 'active' ? 'muted' : 'warned')}>${state}${worker.health ? `, ${worker.health}` : ''}${worker.server ? ` on ${worker.server}` : ''}</div></div>
    <${Slots} worker=${worker}/><span class="num small muted">${compact(worker.running)} of ${compact(worker.slots)}</span>
    <div class="labels">${labels.map(([name, value]) => html`<${Tag}>${name}=${String(value)}</${Tag}>`)}</div></li>`;
}

export function Workers() {
  const found = all.value;
  const rest = found.length - SHOWN;
  return html`<${Card} title="Workers" span=${7} about="a square is a slot, in its task's colour while it runs a job" more=${{ href: link('/workers'), text: 'all workers' }}>${found.length
    ? html`<ul class="workers">${found.slice(0, SHOWN).map((worker) => html`<${Row} worker=${worker} key=${keyOf(worker)}/>`)}</ul><${Legend} workers=${found}/>
      ${(rest > 0 || summary.value.has_more_workers) && html`<p class="small muted">and ${summary.value.has_more_workers ? 'more' : rest + ' more'}</p>`}`
    : html`<${Empty}>No worker is connected, so nothing can run.</${Empty}>`}</${Card}>`;
}
