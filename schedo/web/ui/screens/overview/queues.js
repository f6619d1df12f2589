// Where jobs queue: those with something due first, as they were when the page was opened.
import { computed, html, signal } from '../../lib/base.js';
import { compact } from '../../lib/format.js';
import { on, summary } from '../../lib/live.js';
import { due } from '../../lib/queues.js';
import { link } from '../../lib/router.js';
import { Card, Empty, Gauge, Tag } from '../../parts/basics.js';
import { Later } from '../../parts/later_jobs.js';

const SHOWN = 8;
const changed = signal(new Map()); // what the stream has told since the summary

on('queues', ({ queues }) => {
  if (!queues) return;
  const next = new Map(changed.peek());
  for (const queue of queues) next.set(queue.name, { ...next.get(queue.name), ...queue });
  changed.value = next;
});

// The order follows the summary and not each tick, so that rows do not move under the pointer; new queues come last.
const all = computed(() => {
  const known = new Set(summary.value.queues.map((queue) => queue.name));
  return [...summary.value.queues, ...[...changed.value.values()].filter((queue) => queue.waiting && !known.has(queue.name))];
});
const order = computed(() => {
  const found = all.value;
  const sorted = found.length > SHOWN ? [...found].sort((one, other) => due(other) - due(one) || other.running - one.running) : found;
  return sorted.slice(0, SHOWN);
});

function Row({ queue }) {
  const known = { ...queue, ...changed.value.get(queue.name) };
  return html`<tr><td class="name"><a href=${link(`/queues/${encodeURIComponent(known.name)}`)}>${known.name}</a>${known.paused && html` <${Tag}>paused</${Tag}>`}</td>
    <td class="gauge"><${Gauge} queue=${known}/></td>
    <td class="num">${compact(known.running)} / ${known.concurrency ?? '∞'}</td>
    <td class=${'num' + (due(known) ? ' due' : '')}>${compact(due(known))}</td><td class="num muted"><${Later} queue=${known}/></td></tr>`;
}

export function Queues() {
  const queues = all.value;
  const hasMore = summary.value.has_more_queues;
  const rest = queues.length - order.value.length;
  return html`<${Card} title="Queues" span=${5} more=${{ href: link('/queues'), text: 'all queues' }}>${queues.length
    ? html`<div class="table" role="group" aria-label="Queues" tabindex="0"><table><thead><tr><th scope="col">Queue</th><th scope="col" class="gauge">Concurrency</th><th scope="col" class="num">Running</th>
      <th scope="col" class="num">Due</th><th scope="col" class="num">Later</th></tr></thead>
      <tbody>${order.value.map((queue) => html`<${Row} queue=${queue} key=${queue.name}/>`)}</tbody></table></div>
      ${(rest > 0 || hasMore) && html`<p class="small muted">and ${hasMore ? 'more' : `${rest} more`} with less to do</p>`}`
    : html`<${Empty}>No queue has jobs or limits.</${Empty}>`}</${Card}>`;
}
