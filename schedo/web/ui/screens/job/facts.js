// What is known of a job apart from its life: where it came from, and what it asks for.
import { html } from '../../lib/base.js';
import { plural } from '../../lib/format.js';
import { legible, reveal } from '../../lib/legible.js';
import { link } from '../../lib/router.js';
import { Card, Time } from '../../parts/basics.js';

const path = (folder, name) => link(`/${folder}/${encodeURIComponent(name)}`);
const Value = ({ value }) => html`<code>${reveal(JSON.stringify(value))}</code>`;

// [name, markup] of each fact that the job has.
function listFacts(job) {
  const attempts = [job.max_attempts ? `${job.attempt} of ${job.max_attempts}` : String(job.attempt),
    job.failures && `${job.failures} failed`, job.losses && `${job.losses} lost`].filter(Boolean).join(', ');
  return [
    ['Queue', html`<a href=${path('queues', job.queue)}>${job.queue}</a>, priority ${job.priority}`],
    ['Attempts', attempts],
    job.worker && ['Worker', html`<a href=${path('workers', job.worker)}>${job.worker}</a>`],
    job.schedule && ['Schedule', html`<a href=${path('schedules', job.schedule)}>${job.schedule}</a>${job.scheduled_for
      ? html` for <${Time} at=${job.scheduled_for}/>` : null}${job.missed_count ? `, with ${plural(job.missed_count, 'missed fire')}` : null}`],
    job.trigger && ['Made by', job.trigger.replaceAll('_', ' ')],
    job.timeout && ['Timeout', job.timeout],
    job.expires_at && ['Expires', html`<${Time} at=${job.expires_at}/>`],
    job.unique_key && ['Unique key', html`<code>${legible(job.unique_key)}</code>`],
    job.tags && ['Tags', job.tags.map((tag) => html`<a class="tag" href=${link('/jobs', { tag })}>${tag}</a> `)],
    job.meta && ['Meta', html`<${Value} value=${job.meta}/>`],
    job.requires && ['Requires', html`<${Value} value=${job.requires}/>`],
    job.prefer && ['Prefers', html`<${Value} value=${job.prefer}/>`],
    job.on_failure && ['On failure', html`<${Value} value=${job.on_failure}/>`],
    job.keep && ['Kept', html`<${Value} value=${job.keep}/>`],
    ['Delivery', job.delivery === 'at_most_once' ? 'at most once' : 'at least once'],
    job.traceparent && ['Trace', html`<code>${job.traceparent}</code>`],
    ['Created', html`<${Time} at=${job.created_at} digits=${6} full/>`],
  ].filter(Boolean);
}

export const Facts = ({ job }) => html`<${Card} title="Facts"><dl class="facts">${listFacts(job).map(([name, value]) => html`
  <dt>${name}</dt><dd>${value}</dd>`)}</dl></${Card}>`;
