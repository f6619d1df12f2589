// Jobs that are due and wait for longer than five seconds, and the first reason of each.
import { html, useRef } from '../../lib/base.js';
import { legible } from '../../lib/legible.js';
import { loadSummary, summary, useEvent } from '../../lib/live.js';
import { link } from '../../lib/router.js';
import { Card, Empty, Since } from '../../parts/basics.js';

const EACH_MS = 10_000; // the summary is read again so often while jobs are due

export function Waiting() {
  const found = summary.value.long_waits;
  const readAt = useRef(Date.now());
  useEvent('tick', ({ figures }) => {
    const isOver = found.length && !figures?.due;
    if (!isOver && (!figures?.due || Date.now() - readAt.current < EACH_MS)) return;
    readAt.current = Date.now();
    loadSummary();
  }, [found]);
  return html`<${Card} title="Waiting longer than 5 s" span=${5} about="and why" more=${{ href: link('/jobs', { state: 'queued' }), text: 'all queued' }}>${found.length
    ? html`<ul class="waiting">${found.map((each) => html`<li key=${each.job}>
      <div><a class="mono" href=${link(`/jobs/${each.job}`)}>${each.job}</a> <b>${each.task}</b> <span class="muted small">in ${each.queue}, <${Since} at=${each.due_at}/></span></div>
      <div class="small muted">${legible(each.why)}</div></li>`)}</ul>`
    : html`<${Empty}>Nothing waits for anything but its time.</${Empty}>`}</${Card}>`;
}
