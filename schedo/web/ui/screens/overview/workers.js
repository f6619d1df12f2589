// Who works: a square is a slot, filled while it runs a job.
import { computed, html, signal, styled } from '../../lib/base.js';
import { compact } from '../../lib/format.js';
import { on, summary } from '../../lib/live.js';
import { link } from '../../lib/router.js';
import { Card, Empty, Tag } from '../../parts/basics.js';

const SHOWN = 8;
const SQUARES = 64; // a worker with more slots has a bar
const changed = signal(new Map());
const gone = signal(new Set());

on('workers', (data) => {
  const next = new Map(changed.peek());
  for (const worker of data.workers) next.set(worker.name, worker);
  for (const name of data.gone) next.delete(name);
  changed.value = next;
  gone.value = new Set([...gone.peek(), ...data.gone].filter((name) => !next.has(name)));
});

const all = computed(() => {
  const known = new Map(summary.value.workers.map((worker) => [worker.name, worker]));
  for (const [name, worker] of changed.value) known.set(name, { kind: '', labels: {}, ...known.get(name), ...worker });
  return [...known.values()].filter((worker) => worker.slots && !gone.value.has(worker.name));
});

export const Slots = ({ running, slots }) => (slots > SQUARES
  ? html`<span class="bar" role="img" aria-label=${`${running} of ${slots} slots busy`}><i ref=${styled({ width: `${(running / slots) * 100}%`, background: 'var(--st-running)' })}></i></span>`
  : html`<span class="slots" role="img" aria-label=${`${running} of ${slots} slots busy`}>${Array.from({ length: slots }, (_, at) => html`<i class=${at < running ? 'on' : ''}></i>`)}</span>`);

function Row({ worker }) {
  const labels = Object.entries(worker.labels ?? {});
  const state = worker.state === 'active' ? worker.kind : worker.state;
  return html`<li class="worker"><div><a href=${link(`/workers/${encodeURIComponent(worker.name)}`)}>${worker.name}</a>
      <div class=${'small ' + (worker.state === 'active' ? 'muted' : 'warned')}>${state}${worker.health ? `, ${worker.health}` : ''}</div></div>
    <${Slots} running=${worker.running} slots=${worker.slots}/><span class="num small muted">${compact(worker.running)} of ${compact(worker.slots)}</span>
    <div class="labels">${labels.map(([name, value]) => html`<${Tag}>${name}=${String(value)}</${Tag}>`)}</div></li>`;
}

export function Workers() {
  const found = all.value;
  const rest = found.length - SHOWN;
  return html`<${Card} title="Workers" span=${7} about="a square is a slot, filled while it runs a job" more=${{ href: link('/workers'), text: 'all workers' }}>${found.length
    ? html`<ul class="workers">${found.slice(0, SHOWN).map((worker) => html`<${Row} worker=${worker} key=${worker.name}/>`)}</ul>
      ${(rest > 0 || summary.value.has_more_workers) && html`<p class="small muted">and ${summary.value.has_more_workers ? 'more' : rest + ' more'}</p>`}`
    : html`<${Empty}>No worker is connected, so nothing can run.</${Empty}>`}</${Card}>`;
}
