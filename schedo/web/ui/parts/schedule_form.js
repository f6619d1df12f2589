// The fields of a schedule: all that its PUT takes, in groups, of which those that are rarely needed are closed.
import { html, useEffect, useMemo, useRef, useState } from '../lib/base.js';
import { get } from '../lib/api.js';
import { isUnder, pointerOf } from '../lib/body.js';
import { Card } from './basics.js';
import { Fields, summarize } from './fields.js';
import { ALL_KINDS } from './job_fields.js';

const isCron = (body) => kindOf(body) === 'cron';
const INSTANT = 'an instant, such as 2027-01-04T06:00:00Z';
const RULE = [
  { path: ['cron'], label: 'Cron', isMono: true, isRequired: true, when: isCron, hint: 'minute hour day month weekday, six fields with seconds first; H: a value of its own' },
  { path: ['tz'], label: 'Time zone', list: 'zones', placeholder: 'UTC', when: isCron },
  { path: ['dst', 'gap'], kind: 'choice', label: 'A time that does not exist', options: { after: 'run after the gap', skip: 'skip it' }, otherwise: 'after', when: isCron },
  { path: ['dst', 'fold'], kind: 'choice', label: 'A time that exists twice', options: { first: 'the first time', last: 'the last time', both: 'both times' }, otherwise: 'first', when: isCron },
  { path: ['every'], label: 'Every', isRequired: true, hint: 'such as 90s, 15m, 1h30m', when: (body) => kindOf(body) === 'every' },
  { path: ['at'], label: 'At', isRequired: true, hint: INSTANT, when: (body) => kindOf(body) === 'at' },
  { path: ['jitter'], label: 'Jitter', placeholder: 'none', hint: 'each run is late by a random time up to this, such as 5m' },
];
const JOB = [
  { path: ['task'], label: 'Task', list: 'tasks', isRequired: true },
  { path: ['queue'], label: 'Queue', list: 'queues', placeholder: 'default' },
  { path: ['payload'], kind: 'json', label: 'Payload', rows: 5, otherwise: null },
];
// Those that are rarely needed: a closed group says what is set in it.
const GROUPS = [
  { title: 'When a run fails', fields: [
    { path: ['retry'], kind: 'retry', label: 'Is it tried again' },
    { path: ['delivery'], kind: 'choice', label: 'A lost attempt', options: { '': 'as its task says', at_least_once: 'is repeated', at_most_once: 'is not repeated' } },
    { path: ['on_failure'], kind: 'event_job', label: 'After a final failure, run the task' }] },
  { title: 'When something is in the way', fields: [
    { path: ['overlap'], kind: 'choice', label: 'An earlier run is unfinished', options: { skip: 'skip the new run', allow: 'run both', buffer_one: 'hold the newest run back', cancel_other: 'cancel the earlier run' }, otherwise: 'skip' },
    { path: ['catchup'], kind: 'choice', label: 'Instants were missed', options: { latest: 'run the latest', all: 'run all', skip: 'run none' }, otherwise: 'latest' },
    { path: ['catchup_window'], label: 'Missed at most this long ago', placeholder: '24h' },
    { path: ['catchup_max'], kind: 'number', label: 'Missed runs at most', placeholder: '100' }] },
  { title: 'What is expected', fields: [
    { path: ['expect', 'within'], label: 'Expect a completed run within', placeholder: 'nothing is expected', hint: 'of each instant; else it is overdue' },
    { path: ['expect', 'max_duration'], label: 'Expect that a run takes at most', placeholder: 'nothing is expected' },
    { path: ['expect', 'on_miss'], kind: 'event_job', label: 'When it is overdue, run the task' },
    { path: ['expect', 'on_back'], kind: 'event_job', label: 'When it is met again, run the task' }] },
  { title: 'Limits', fields: [
    { path: ['timeout'], label: 'An attempt runs at most', placeholder: 'no limit' },
    { path: ['expires_in'], label: 'Expires if not started within', placeholder: 'never' },
    { path: ['priority'], kind: 'number', label: 'Priority', placeholder: '0', hint: '−9 to 9; higher runs first' },
    { path: ['start_at'], label: 'Fires from', placeholder: 'now', hint: INSTANT },
    { path: ['end_at'], label: 'Fires until', placeholder: 'no end', hint: INSTANT },
    { path: ['paused'], kind: 'choice', label: 'Paused', options: { false: 'no, it fires', true: 'yes' }, values: { false: false, true: true }, otherwise: 'false' }] },
  { title: 'Where it runs', fields: [
    { path: ['requires'], kind: 'json', label: 'Only workers with', rows: 4, placeholder: '{"labels": {"region": "eu"}, "resources": {"cpu": 2}}' },
    { path: ['prefer'], kind: 'json', label: 'Rather workers with, the best first', rows: 3, placeholder: '[{"zone": "lhr"}, {"zone": "eu"}]' }] },
  { title: 'Tags, and how long runs are kept', fields: [
    { path: ['tags'], kind: 'list', label: 'Tags', placeholder: 'none', hint: 'names by which jobs are found' },
    { path: ['keep', 'completed'], label: 'Keep completed runs', placeholder: 'as its task or queue says', hint: 'such as 30d; 0s: not at all' },
    { path: ['keep', 'failed'], label: 'Keep failed runs', placeholder: 'as its task or queue says' },
    { path: ['keep', 'cancelled'], label: 'Keep cancelled and expired runs', placeholder: 'as its task or queue says' },
    { path: ['meta'], kind: 'json', label: 'Meta', placeholder: '{"owner": "ada"}', hint: 'an object for your own use' }] },
];
const PLACES = [...RULE, ...JOB, ...GROUPS.flatMap((group) => group.fields)].map((field) => pointerOf(field.path));

// The errors that no field shows.
export const elsewhere = (errors) => errors.filter((error) => error.pointer !== '/name' && !PLACES.some((place) => isUnder(error.pointer, place)));

const KINDS = { cron: 'cron', every: 'interval', at: 'once' };
export const kindOf = (body) => Object.keys(KINDS).find((kind) => body[kind] !== undefined) ?? 'cron';

function useNames() {
  const [names, setNames] = useState({ tasks: [], queues: [] });
  useEffect(() => { get('/v1/names').then(setNames, () => {}); }, []);
  return names;
}

const List = ({ id, items }) => html`<datalist id=${id}>${items.map((item) => html`<option value=${item}/>`)}</datalist>`;

// By what it fires; what was said of the other kinds comes back with them.
function Kind({ form }) {
  const said = useRef({ cron: { cron: '' }, every: { every: '' }, at: { at: '' } });
  const { cron, every, at, tz, dst, ...rest } = form.body;
  const kind = kindOf(form.body);
  const choose = (next) => {
    said.current[kind] = { cron: { cron, tz, dst }, every: { every }, at: { at } }[kind];
    form.replace({ ...said.current[next], ...rest });
  };
  return html`<div class="field"><span id="kind">Fires by</span><div class="seg" role="group" aria-labelledby="kind">${Object.entries(KINDS).map(([each, word]) => html`
    <button type="button" aria-pressed=${kind === each} onClick=${() => each !== kind && choose(each)}>${word}</button>`)}</div></div>`;
}

// Fields that open when they are asked for, or when one of them is wrong.
function Group({ form, group: { title, fields } }) {
  const places = fields.map((field) => pointerOf(field.path));
  const isWrong = form.errors.some((error) => places.some((place) => isUnder(error.pointer, place)));
  const [isOpen, setOpen] = useState(false);
  return html`<details class="card c12 group" open=${isOpen || isWrong} onToggle=${(event) => setOpen(event.target.open)}>
    <summary><h2>${title}</h2><span class="about">${isOpen ? '' : summarize(fields, form.body) || 'nothing is set'}</span></summary>
    <div class="body"><div class="fields"><${Fields} form=${form} fields=${fields} kinds=${ALL_KINDS}/></div></div></details>`;
}

// form: {body, set, replace(body), errors, setMistake} as parts/fields.js has it; NAME: the field of the name, for a new schedule.
export function ScheduleForm({ form, name }) {
  const names = useNames();
  const zones = useMemo(() => Intl.supportedValuesOf?.('timeZone') ?? [], []);
  return html`<${Card} title="Rule"><div class="fields">${name}<${Kind} form=${form}/><${Fields} form=${form} fields=${RULE}/></div></${Card}>
    <${Card} title="Job"><div class="fields"><${Fields} form=${form} fields=${JOB}/></div></${Card}>
    ${GROUPS.map((group) => html`<${Group} key=${group.title} form=${form} group=${group}/>`)}
    <${List} id="zones" items=${zones}/><${List} id="tasks" items=${names.tasks}/><${List} id="queues" items=${names.queues}/>`;
}
