// What a schedule is set to, as a list of facts.
import { html } from '../../lib/base.js';
import { count, duration } from '../../lib/format.js';
import { link } from '../../lib/router.js';
import { medianRun } from '../../lib/schedules.js';
import { Tag, Time } from '../../parts/basics.js';

const json = (value) => html`<code>${JSON.stringify(value)}</code>`;
const attempts = ({ preset, max_attempts: most, backoff, initial, max }) => (most === 1 ? 'none' : preset ?? `${most} attempts, after ${initial}${backoff === 'fixed' ? ' each' : ` to ${max}`}`);

// The fields that are shown only if they are set: [name, label, value in words].
const OPTIONS = [
  ['start_at', 'Fires from', (at) => html`<${Time} at=${at} full/>`],
  ['end_at', 'Fires until', (at) => html`<${Time} at=${at} full/>`],
  ['retry', 'Retries', attempts],
  ['delivery', 'A lost attempt', (delivery) => (delivery === 'at_most_once' ? 'is not repeated' : 'is repeated')],
  ['on_failure', 'On failure', (job) => html`runs <a href=${link('/jobs', { task: job.task })}>${job.task}</a>`],
  ['timeout', 'Time limit'],
  ['expires_in', 'Expires'],
  ['requires', 'Needs workers', json],
  ['prefer', 'Prefers', json],
  ['keep', 'Kept', (times) => Object.entries(times).map(([state, time]) => `${state} ${time}`).join(', ')],
  ['tags', 'Tags', (tags) => tags.map((tag) => html`<a class="tag" href=${link('/jobs', { tag })}>${tag}</a> `)],
  ['meta', 'Meta', json],
];

export function Facts({ schedule }) {
  const { runs } = schedule;
  const median = medianRun(schedule);
  const set = OPTIONS.filter(([name]) => schedule[name] !== undefined);
  const policy = { skip: 'skip the new run', allow: 'run both', buffer_one: 'hold the newest back', cancel_other: 'cancel the earlier' };
  return html`<dl class="facts"><dt>Task</dt><dd><a href=${link('/jobs', { task: schedule.task })}>${schedule.task}</a></dd>
    <dt>Queue</dt><dd><a href=${link(`/queues/${encodeURIComponent(schedule.queue)}`)}>${schedule.queue}</a>, priority ${schedule.priority}</dd>
    <dt>Runs</dt><dd>${count(runs.completed)} completed, ${count(runs.failed)} failed${runs.failed_in_row ? `, ${count(runs.failed_in_row)} in a row` : ''}</dd>
    <dt>Median run</dt><dd>${median === null ? '–' : duration(median)}</dd>
    <dt>Overlap</dt><dd>${policy[schedule.overlap]}</dd>
    <dt>Catch-up</dt><dd>${schedule.catchup === 'skip' ? 'none' : `${schedule.catchup}, up to ${schedule.catchup_window} old`}</dd>
    ${schedule.jitter && html`<dt>Jitter</dt><dd>up to ${schedule.jitter}</dd>`}
    ${set.map(([name, label, inWords]) => html`<dt>${label}</dt><dd>${inWords ? inWords(schedule[name]) : schedule[name]}</dd>`)}
    <dt>Owner</dt><dd><${Tag}>${schedule.owner}</${Tag}>${schedule.edited && html` <span class="mark warn">changed by hand: ${schedule.edited.join(', ')}</span>`}</dd>
    <dt>Changed</dt><dd><${Time} at=${schedule.updated_at}/></dd></dl>`;
}
