// The fields of a schedule. They change its body, the JSON of the request; what has no field is changed there.
import { html, useEffect, useMemo, useState } from '../lib/base.js';
import { get } from '../lib/api.js';
import { Card } from './basics.js';

const POLICIES = {
  overlap: { skip: 'skip the new run', allow: 'run both', buffer_one: 'hold the newest run back', cancel_other: 'cancel the earlier run' },
  catchup: { latest: 'run the latest', all: 'run all', skip: 'run none' },
  gap: { after: 'run after the gap', skip: 'skip it' },
  fold: { first: 'the first time', last: 'the last time', both: 'both times' },
};

// A field with its label, its hint and what the server says about it.
function Field({ label, hint, error, children }) {
  return html`<label class=${'field' + (error ? ' wrong' : '')}><span>${label}</span>${children}${hint && html`<span class="hint">${hint}</span>`}
    ${error && html`<span class="mark bad" role="alert">${error}</span>`}</label>`;
}

const Text = ({ value, onChange, ...rest }) => html`<input type="text" spellcheck="false" autocomplete="off" value=${value ?? ''} onInput=${(event) => onChange(event.target.value)} ...${rest}/>`;
const Choice = ({ value, options, onChange }) => html`<select value=${value} onChange=${(event) => onChange(event.target.value)}>${Object.entries(options).map(([name, text]) => html`<option value=${name}>${text}</option>`)}</select>`;

const kindOf = (body) => ['cron', 'every', 'at'].find((kind) => body[kind] !== undefined) ?? 'cron';
const KINDS = { cron: 'cron', every: 'interval', at: 'once' };

function useNames() {
  const [names, setNames] = useState({ tasks: [], queues: [] });
  useEffect(() => { get('/v1/names').then(setNames, () => {}); }, []);
  return names;
}

// A text that is JSON: it changes the value when it can be read, else it says why not.
function JsonField({ label, value, onChange, rows = 5, error, hint }) {
  const [text, setText] = useState(null);
  const [wrong, setWrong] = useState('');
  const type = (typed) => {
    setText(typed);
    try {
      onChange(JSON.parse(typed || 'null'));
      setWrong('');
    } catch (failure) {
      setWrong(failure.message);
      onChange(undefined);
    }
  };
  return html`<${Field} label=${label} hint=${hint} error=${wrong || error}><textarea rows=${rows} spellcheck="false" value=${text ?? JSON.stringify(value ?? null, null, 2)}
    onInput=${(event) => type(event.target.value)} onBlur=${() => { if (!wrong) setText(null); }}></textarea></${Field}>`;
}

// body and name; onChange(body); onName for a new schedule; errors by the first part of their pointer; setReadable(whether the JSON can be read).
export function ScheduleForm({ body, name, onName, onChange, errors, setReadable }) {
  const names = useNames();
  const zones = useMemo(() => Intl.supportedValuesOf?.('timeZone') ?? [], []);
  const kind = kindOf(body);
  const set = (changes) => onChange(Object.fromEntries(Object.entries({ ...body, ...changes }).filter(([, value]) => value !== undefined && value !== '')));
  const setRule = (next) => onChange({ ...Object.fromEntries(Object.entries(body).filter(([key]) => !(key in KINDS) && (next === 'cron' || key !== 'tz'))), [next]: '' });
  const setExpect = (field, value) => {
    const next = Object.fromEntries(Object.entries({ ...body.expect, [field]: value }).filter(([, each]) => each));
    set({ expect: next.within || next.max_duration ? next : undefined });
  };
  const payload = (value) => {
    setReadable(value !== undefined);
    if (value !== undefined) onChange({ ...body, payload: value });
  };
  return html`<${Card} title="Rule"><div class="fields">
      ${onName && html`<${Field} label="Name" error=${errors.name} hint="letters, digits, dots, underscores and hyphens"><${Text} value=${name} onChange=${onName} required/></${Field}>`}
      <div class="field"><span id="kind">Fires by</span><div class="seg" role="group" aria-labelledby="kind">${Object.entries(KINDS).map(([each, word]) => html`<button type="button" aria-pressed=${kind === each} onClick=${() => setRule(each)}>${word}</button>`)}</div></div>
      ${kind === 'cron' && html`<${Field} label="Cron" error=${errors.cron} hint="minute hour day month weekday, six fields with seconds first; H: a value of its own"><${Text} className="mono" value=${body.cron} onChange=${(cron) => onChange({ ...body, cron })} required/></${Field}>
        <${Field} label="Time zone" error=${errors.tz}><${Text} value=${body.tz} list="zones" placeholder="UTC" onChange=${(tz) => set({ tz })}/></${Field}>
        <${Field} label="A time that does not exist"><${Choice} value=${body.dst?.gap ?? 'after'} options=${POLICIES.gap} onChange=${(gap) => set({ dst: { ...body.dst, gap } })}/></${Field}>
        <${Field} label="A time that exists twice"><${Choice} value=${body.dst?.fold ?? 'first'} options=${POLICIES.fold} onChange=${(fold) => set({ dst: { ...body.dst, fold } })}/></${Field}>`}
      ${kind === 'every' && html`<${Field} label="Every" error=${errors.every} hint="such as 90s, 15m, 1h30m"><${Text} value=${body.every} onChange=${(every) => onChange({ ...body, every })} required/></${Field}>`}
      ${kind === 'at' && html`<${Field} label="At" error=${errors.at} hint="an instant, such as 2027-01-04T06:00:00Z"><${Text} value=${body.at} onChange=${(at) => onChange({ ...body, at })} required/></${Field}>`}
      <${Field} label="Jitter" error=${errors.jitter} hint="each run is late by a random time up to this"><${Text} value=${body.jitter} placeholder="none" onChange=${(jitter) => set({ jitter })}/></${Field}>
      <datalist id="zones">${zones.map((zone) => html`<option value=${zone}/>`)}</datalist></div></${Card}>
    <${Card} title="Job"><div class="fields"><${Field} label="Task" error=${errors.task}><${Text} value=${body.task} list="tasks" onChange=${(task) => set({ task })} required/></${Field}>
      <${Field} label="Queue" error=${errors.queue}><${Text} value=${body.queue} list="queues" placeholder="default" onChange=${(queue) => set({ queue })}/></${Field}>
      <datalist id="tasks">${names.tasks.map((each) => html`<option value=${each}/>`)}</datalist><datalist id="queues">${names.queues.map((each) => html`<option value=${each}/>`)}</datalist></div>
      <${JsonField} label="Payload" value=${body.payload} onChange=${payload} error=${errors.payload}/></${Card}>
    <${Card} title="When something is in the way"><div class="fields"><${Field} label="An earlier run is unfinished"><${Choice} value=${body.overlap ?? 'skip'} options=${POLICIES.overlap} onChange=${(overlap) => set({ overlap })}/></${Field}>
      <${Field} label="Instants were missed"><${Choice} value=${body.catchup ?? 'latest'} options=${POLICIES.catchup} onChange=${(catchup) => set({ catchup })}/></${Field}>
      <${Field} label="Missed at most this long ago" error=${errors.catchup_window}><${Text} value=${body.catchup_window} placeholder="24h" onChange=${(window) => set({ catchup_window: window })}/></${Field}>
      <${Field} label="Expect a completed run within" error=${errors.expect} hint="of each instant; else it is overdue"><${Text} value=${body.expect?.within} placeholder="nothing is expected" onChange=${(value) => setExpect('within', value)}/></${Field}>
      <${Field} label="Expect that a run takes at most"><${Text} value=${body.expect?.max_duration} placeholder="nothing is expected" onChange=${(value) => setExpect('max_duration', value)}/></${Field}></div></${Card}>`;
}
