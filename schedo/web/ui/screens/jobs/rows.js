// The columns of the list of jobs.
import { html } from '../../lib/base.js';
import { duration, instant, now } from '../../lib/format.js';
import { legible, reveal } from '../../lib/legible.js';
import { endOf } from '../../lib/life.js';
import { link } from '../../lib/router.js';
import { Since, Time } from '../../parts/basics.js';
import { State } from '../../parts/state.js';

const END = { completed: 'completed_at', failed: 'failed_at', cancelled: 'cancelled_at', expired: 'expired_at' };

// A job of the list after an event: only what the event tells is changed.
export function update(job, { state, attempt, worker, scheduled_at, picked_at, ended_at }) {
  const { completed_at, failed_at, cancelled_at, expired_at, started_at, ...rest } = job; // eslint-disable-line
  const changed = { ...rest, state, attempt, scheduled_at, worker: worker ?? rest.worker };
  if (picked_at) changed.started_at = picked_at;
  if (ended_at && END[state]) changed[END[state]] = ended_at;
  return changed;
}

const late = (job) => (job.started_at ? Math.max(0, instant(job.started_at) - instant(job.scheduled_at)) : null);
// A job that was cancelled or expired may not have been running.
const ran = (job) => (job.started_at && (job.completed_at || job.failed_at) ? endOf(job) - instant(job.started_at) : null);
const span = (micros) => (micros === null ? '' : duration(micros));

// What the last column says: the error of a failed job, else the beginning of its payload.
function Content({ job }) {
  if (job.error) {
    const text = legible(job.error.message || job.error.type);
    return html`<span title=${text}>${text}</span>`;
  }
  if (job.payload === undefined || job.payload === null) return null;
  const text = reveal(JSON.stringify(job.payload));
  return html`<span class="mono muted" title=${text.slice(0, 1000)}>${text.slice(0, 200)}</span>`;
}

// When a job is due, counted down.
function Due({ job }) {
  const isFuture = job.state !== 'queued' && instant(job.scheduled_at) > now();
  return html`<${Time} at=${endOf(job) ?? job.scheduled_at}/>${isFuture && !endOf(job) && html` <span class="muted small">in <${Since} at=${job.scheduled_at}/></span>`}`;
}

export const FIELDS = 'id,state,task,queue,attempt,max_attempts,scheduled_at,started_at,completed_at,failed_at,cancelled_at,expired_at,worker,payload,error';
export const COLUMNS = [
  { title: 'Id', cell: (job) => html`<a class="mono" href=${link(`/jobs/${job.id}`)}>${job.id}</a>` },
  { title: 'State', className: 'health', cell: (job) => html`<${State} state=${job.state}/>` },
  { title: 'Task', cell: (job) => job.task },
  { title: 'Queue', className: 'wide', cell: (job) => job.queue },
  { title: 'Due, or ended', cell: (job) => html`<${Time} at=${endOf(job) ?? job.scheduled_at}/>`, due: (job) => html`<${Due} job=${job}/>` },
  { title: 'Late', number: true, cell: (job) => span(late(job)) },
  { title: 'Ran', number: true, cell: (job) => span(ran(job)) },
  { title: 'Attempt', number: true, className: 'wide', cell: (job) => `${job.attempt}${job.max_attempts ? `/${job.max_attempts}` : ''}` },
  { title: 'Worker', className: 'wide', cell: (job) => job.worker ?? '' },
  { title: 'Error, or payload', className: 'cut text', cell: (job) => html`<${Content} job=${job}/>` },
];
// For what comes next: with the time that is left.
export const DUE_COLUMNS = COLUMNS.map((column) => ({ ...column, cell: column.due ?? column.cell }));
