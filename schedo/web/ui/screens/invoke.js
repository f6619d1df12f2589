// The invoke console: run a job on a worker right now, and see what it answers.
import { ApiError, api, asCurl, get } from '../lib/api.js';
import { html, useEffect, useRef, useState } from '../lib/base.js';
import { duration } from '../lib/format.js';
import { tellLife } from '../lib/life.js';
import { features, may } from '../lib/me.js';
import { link, setQuery } from '../lib/router.js';
import { parseWritten } from '../lib/written.js';
import { LifeLine } from '../charts/life.js';
import { Card, Copy, Empty } from '../parts/basics.js';
import { State } from '../parts/state.js';
import { Json } from '../parts/json.js';
import { Takers, useTakers } from './invoke/takers.js';

const FIELDS = ['task', 'queue', 'payload', 'requires', 'wait', 'timeout'];

// Parse a field of JSON; empty means absent.
function parse(text, name) {
  if (!text?.trim()) return undefined;
  try {
    return parseWritten(text);
  } catch (error) {
    throw new ApiError(0, { detail: `${name}: ${error.message}`, errors: [{ pointer: `/${name}`, detail: error.message }] });
  }
}

const makeBody = (form) => ({
  task: form.task, queue: form.queue || undefined, payload: parse(form.payload, 'payload'), requires: parse(form.requires, 'requires'),
  wait: form.wait || undefined, timeout: form.timeout || undefined,
});

function tryBody(form) {
  try {
    return [makeBody(form), null];
  } catch (error) {
    return [null, error];
  }
}

export default function Invoke({ query }) {
  const form = Object.fromEntries(FIELDS.map((name) => [name, query[name] ?? '']));
  const [body, mistake] = tryBody(form);
  const [answer, setAnswer] = useState(null);
  const [takers, refused] = useTakers(body);
  const controller = useRef(null);
  const send = async (event) => {
    event.preventDefault();
    if (!body?.task || answer?.isBusy) return;
    const began = performance.now();
    controller.current = new AbortController();
    setAnswer({ isBusy: true });
    try {
      const job = await api('POST', '/v1/invoke', body, { signal: controller.current.signal });
      const took = (performance.now() - began) * 1000;
      setAnswer({ job, took, history: await get(`/v1/jobs/${job.id}/history`).catch(() => null) });
    } catch (error) {
      setAnswer(error.name === 'AbortError' ? null : { error, took: (performance.now() - began) * 1000 });
    }
  };
  useEffect(() => () => controller.current?.abort(), []);
  return html`<div class="head"><h1>Invoke</h1><p class="muted">A worker takes the job now, or the request fails: it never waits in a queue, and is never retried.</p></div>
    <div class="grid"><div class="c6 stack"><${Form} form=${form} mistake=${mistake ?? answer?.error ?? refused} send=${send} isBusy=${answer?.isBusy} body=${body}/></div>
      <div class="c6 stack"><${Takers} answer=${takers} error=${mistake ?? refused}/><${Answer} answer=${answer} stop=${() => controller.current?.abort()}/></div></div>`;
}

const change = (name) => (event) => setQuery({ [name]: event.target.value });

function Field({ form, name, label, help, mistake, rows, list, placeholder }) {
  const isWrong = mistake?.wrong?.pointer?.split('/')[1] === name;
  const shared = { id: `invoke-${name}`, value: form[name], onInput: change(name), spellcheck: false, placeholder, 'aria-invalid': isWrong ? 'true' : undefined, 'aria-describedby': `invoke-${name}-help` };
  return html`<div class="field"><label for=${shared.id}>${label}</label>
    ${rows ? html`<textarea ...${shared} rows=${rows}></textarea>` : html`<input type="text" ...${shared} list=${list} autocomplete="off"/>`}
    <small id=${`invoke-${name}-help`} class=${isWrong ? 'bad' : 'muted'}>${isWrong ? mistake.wrong.detail : help}</small></div>`;
}

function Form({ form, mistake, send, isBusy, body }) {
  const [names, setNames] = useState({});
  useEffect(() => { get('/v1/names').then(setNames, () => {}); }, []);
  const shared = { form, mistake };
  const press = (event) => { if (event.key === 'Enter' && !event.repeat && (event.ctrlKey || event.metaKey)) send(event); };
  return html`<${Card} title="The job" id="invoke-form"><form onSubmit=${send} onKeyDown=${press}>
    <${Field} ...${shared} name="task" label="Task" help="Which function of a worker to run." list="invoke-tasks"/>
    <datalist id="invoke-tasks">${(names.tasks ?? []).map((each) => html`<option value=${each}/>`)}</datalist>
    <${Field} ...${shared} name="payload" label="Payload" rows=${8} help="JSON, or nothing." placeholder=${'{"order": 9781}'}/>
    <${Field} ...${shared} name="requires" label="Requires" rows=${2} help="JSON: labels, resources and the version that the worker must have." placeholder=${'{"labels": {"region": "eu"}}'}/>
    <div class="row"><${Field} ...${shared} name="queue" label="Queue" help="default, if it is empty" list="invoke-queues"/>
      <${Field} ...${shared} name="wait" label="Wait" help="for the end; 30s, if it is empty"/><${Field} ...${shared} name="timeout" label="Timeout" help="of the attempt"/></div>
    <datalist id="invoke-queues">${(names.queues ?? []).map((each) => html`<option value=${each}/>`)}</datalist>
    <div class="buttons">${body?.task && html`<${Copy} text=${asCurl({ path: '/v1/invoke', body }, features.value.tokens)} label="Copy as curl"/>`}<span class="grow"></span>
      ${may('invoke') ? html`<button type="submit" class="btn primary" disabled=${!body?.task} aria-disabled=${isBusy} aria-busy=${isBusy} title="Ctrl Enter">Invoke</button>`
      : html`<span class="muted">This token may not invoke: that needs the role operator.</span>`}</div></form></${Card}>`;
}

function Answer({ answer, stop }) {
  if (!answer) return html`<${Card} title="The answer" id="answer"><${Empty}>Nothing was sent yet.</${Empty}></${Card}>`;
  if (answer.isBusy) return html`<${Card} title="The answer" id="answer" actions=${html`<button class="btn small" onClick=${stop}>Wait no longer</button>`}><${Empty}>A worker is running it…</${Empty}></${Card}>`;
  const { job, error, took, history } = answer;
  const about = `after ${duration(took)} in this browser`;
  if (error) return html`<${Card} title="The answer" id="answer" about=${about}><div class="failure" role="alert"><b>It was not run.</b> ${error.text}</div></${Card}>`;
  return html`<${Card} title="The answer" id="answer" about=${about}><p role="status"><${State} state=${job.state}/> <a class="mono" href=${link(`/jobs/${job.id}`)}>${job.id}</a>${job.worker && html` on <b>${job.worker}</b>`}</p>
    ${history && html`<${LifeLine} life=${tellLife(history)}/>`}
    ${job.error && html`<pre tabindex="0" role="region" aria-label="The error">${job.error.message}</pre>`}
    ${job.result !== undefined && html`<h3>Result</h3><${Json} value=${job.result} label="The result"/>`}</${Card}>`;
}
