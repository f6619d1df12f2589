// Jobs that are due and wait for longer than five seconds, and the reason of each.
import { get } from '../../lib/api.js';
import { html, useRef } from '../../lib/base.js';
import { instant, now } from '../../lib/format.js';
import { useEvent } from '../../lib/live.js';
import { link } from '../../lib/router.js';
import { Card, Empty, Failure, Loading, Since, useData } from '../../parts/basics.js';

const SHOWN = 4;
const LOOKED_AT = 50;
const LONG_US = 5e6;
const EACH_MS = 10_000; // while jobs are due

async function read() {
  const { items } = await get('/v1/jobs', { query: { state: 'queued', limit: LOOKED_AT } });
  const old = items.filter((job) => now() - instant(job.scheduled_at) > LONG_US);
  old.sort((one, other) => instant(one.scheduled_at) - instant(other.scheduled_at));
  return Promise.all(old.slice(0, SHOWN).map(async (job) => {
    try {
      return { ...job, why: (await get(`/v1/jobs/${job.id}/why`)).why };
    } catch {
      return { ...job, why: 'It has gone on meanwhile.' };
    }
  }));
}

export function Waiting() {
  const [found, error, reload] = useData(read, []);
  const readAt = useRef(Date.now());
  useEvent('missed', reload);
  useEvent('tick', ({ figures }) => {
    const isOver = found?.length && !figures?.due;
    if (!isOver && (!figures?.due || Date.now() - readAt.current < EACH_MS)) return;
    readAt.current = Date.now();
    reload();
  }, [found]);
  return html`<${Card} title="Waiting longer than 5 s" span=${5} about="and why" more=${{ href: link('/jobs', { state: 'queued' }), text: 'all queued' }}>${content(found, error, reload)}</${Card}>`;
}

function content(found, error, reload) {
  if (error && !found) return html`<${Failure} error=${error} what="What waits" again=${reload}/>`;
  if (!found) return html`<${Loading}/>`;
  if (!found.length) return html`<${Empty}>Nothing waits for anything but its time.</${Empty}>`;
  return html`<ul class="waiting">${found.map((job) => html`<li key=${job.id}>
    <div><a class="mono" href=${link(`/jobs/${job.id}`)}>${job.id}</a> <b>${job.task}</b> <span class="muted small"><${Since} at=${job.scheduled_at}/></span></div>
    <div class="small muted">${job.why}</div></li>`)}</ul>`;
}
