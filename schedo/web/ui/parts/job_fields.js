// The fields of a schedule that are more than one value: its retries, and the jobs that events make.
import { html, useRef } from '../lib/base.js';
import { valueAt } from '../lib/body.js';
import { Field, Fields, JsonField, KINDS } from './fields.js';

const POLICY = 'policy';
const PRESETS = {
  '': 'as its task says', none: 'no: one attempt', sidekiq: '25 attempts in 20 days (sidekiq)', webhook: '10 attempts in 4 days (webhook)', [POLICY]: 'by a policy',
};
const BACKOFF = { exponential: 'longer each time', fixed: 'the same each time' };
const retryFields = (path) => [
  { path: [...path, 'max_attempts'], kind: 'number', label: 'Attempts', placeholder: '5' },
  { path: [...path, 'backoff'], kind: 'choice', label: 'Delays', options: BACKOFF, otherwise: 'exponential' },
  { path: [...path, 'initial'], label: 'First delay', placeholder: '2s' },
  { path: [...path, 'factor'], kind: 'number', label: 'Grows by the factor', placeholder: '3', when: (body) => valueAt(body, path).backoff !== 'fixed' },
  { path: [...path, 'max'], label: 'Longest delay', placeholder: '1h', when: (body) => valueAt(body, path).backoff !== 'fixed' },
  { path: [...path, 'jitter'], kind: 'number', label: 'Spread by the share', placeholder: '0.2', hint: '0.2: up to a fifth to either side' },
  { path: [...path, 'until'], label: 'Not after', placeholder: 'no limit', hint: 'an instant, such as 2027-01-04T06:00:00Z' },
];

function RetryField({ form, field }) {
  const retry = valueAt(form.body, field.path);
  const isPolicy = retry !== undefined && typeof retry !== 'string';
  const chosen = isPolicy ? POLICY : retry ?? '';
  const choose = ({ target }) => form.set(field.path, target.value === POLICY ? { max_attempts: 5, backoff: 'exponential' } : target.value || undefined);
  return html`<${Field} form=${isPolicy ? { ...form, errors: [] } : form} ...${field} input=${(shared) => html`<select ...${shared} value=${chosen} onChange=${choose}>${Object.entries(PRESETS).map(([name, text]) => html`
      <option value=${name} selected=${name === chosen}>${text}</option>`)}</select>`}/>
    ${isPolicy && html`<div class="inner fields" role="group" aria-label="The policy of retries"><${Fields} form=${form} fields=${retryFields(field.path)}/></div>`}`;
}

const OTHERS = '{"retry": 3, "timeout": "10s"}';

// A job that an event makes: no task, no job.
function EventJobField({ form, field }) {
  const { path, label } = field;
  const job = valueAt(form.body, path);
  const { task, queue, payload, ...others } = job ?? {};
  const before = useRef({}); // what was said beside the task, for a task that is typed anew
  const name = (text) => {
    if (job) before.current = job;
    form.set(path, text ? { ...before.current, task: text } : undefined);
  };
  const replace = (next) => form.set(path, { task, ...(queue && { queue }), ...(payload !== undefined && { payload }), ...next });
  return html`<${Field} form=${job ? { ...form, errors: form.errors.filter((each) => !isInner(each.pointer)) } : form} ...${field} input=${(shared) => html`<input type="text" spellcheck=${false} autocomplete="off" ...${shared} value=${task ?? ''} list="tasks"
      placeholder="no job" onInput=${(event) => name(event.target.value)}/>`}/>
    ${job && html`<div class="inner fields" role="group" aria-label=${`${label}: the job`}><${Fields} form=${form} fields=${[
      { path: [...path, 'queue'], label: 'Its queue', placeholder: 'default', list: 'queues' }, { path: [...path, 'payload'], kind: 'json', label: 'Its payload', hint: 'an object; what has happened is added' }]}/>
      <${JsonField} form=${form} field=${{ path: [...path, 'others'], label: 'Its other fields', placeholder: OTHERS }} value=${Object.keys(others).length ? others : undefined} change=${replace}/></div>`}`;
}

// Whether an error belongs to a field of the job that is shown below its task.
const isInner = (pointer) => /\/(queue|payload)(\/|$)/.test(pointer);

export const ALL_KINDS = { ...KINDS, retry: RetryField, event_job: EventJobField };
