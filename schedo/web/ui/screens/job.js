// One job: why it waits, its life in microseconds, what it wrote, and what can be done.
import { asCurl, get } from '../lib/api.js';
import { html, useEffect, useRef, useState } from '../lib/base.js';
import { duration, instant, micros, when } from '../lib/format.js';
import { listActions } from '../lib/job_actions.js';
import { listStreams, takeProgress } from '../lib/job_output.js';
import { legible } from '../lib/legible.js';
import { listAttempts, nameOf, tellLife } from '../lib/life.js';
import { useKeys } from '../lib/keys.js';
import { tick, useEvent, useLive } from '../lib/live.js';
import { features } from '../lib/me.js';
import { link } from '../lib/router.js';
import { ENDED, WAITING } from '../lib/words.js';
import { getWritten } from '../lib/written.js';
import { LifeLine } from '../charts/life.js';
import { Action, CopyAs, perform } from '../parts/action.js';
import { Card, Failure, Loading, Time, useData } from '../parts/basics.js';
import { State } from '../parts/state.js';
import { Crumbs } from '../parts/crumbs.js';
import { Json } from '../parts/json.js';
import { Payload } from '../parts/payload.js';
import { Table } from '../parts/table.js';
import { TableToggle } from '../parts/table_toggle.js';
import { Facts } from './job/facts.js';
import { Hands } from './job/hands.js';
import { Output } from './job/output.js';
import { Peers } from './job/peers.js';
import { Why } from './job/why.js';

const WHY_MS = 2000; // at most that often it is asked why, while queues and workers change

const readAll = (id) => Promise.all([
  getWritten(`/v1/jobs/${id}`), get(`/v1/jobs/${id}/history`), get(`/v1/jobs/${id}/output`),
]).then(([job, history, output]) => ({ job, history, output: output.items }));

export default function JobScreen({ params: { id } }) {
  const [found, error, reload] = useData(() => readAll(id), [id]);
  const job = found?.job;
  useLive(job ? [`job:${job.id}`] : [], reload);
  useEvent('job', (data) => data.id === job?.id && reload(), [job?.id]);
  useEvent('jobs', (data) => (!data.jobs || data.jobs.some((each) => each.id === job?.id)) && !ENDED.includes(job?.state) && reload(), [job?.id, job?.state]);
  useEffect(() => { if (job) document.title = `${job.task} ${job.state} · schedo`; }, [job?.task, job?.state]);
  if (error?.status === 404) return html`<${NotFound} id=${id} error=${error}/>`;
  if (error && !job) return html`<h1>Job ${id}</h1><${Failure} error=${error} what="The job" again=${reload}/>`;
  if (!job) return html`<h1 class="vh">Job ${id}</h1><${Loading}/>`;
  return html`<${Job} ...${found} reload=${reload}/>`;
}

const NotFound = ({ id, error }) => html`<${Crumbs} items=${[{ text: 'Jobs', href: link('/jobs') }, { text: id }]}/>
  <h1>There is no job ${id}</h1><p>It was deleted when its time was over, or it was never there. By default completed jobs are kept for a
    day and failed ones for a week; the setting <code>retention</code> and a job's own <code>keep</code> say otherwise.</p><p class="muted small">${error.text}</p>`;

function Job({ job, history, output, reload }) {
  const isRunning = job.state === 'running';
  const isWaiting = WAITING.includes(job.state);
  const progress = useProgress(job, isRunning);
  const { error } = job;
  const attempts = listAttempts(history.items);
  return html`<${Crumbs} items=${[{ text: 'Jobs', href: link('/jobs') }, { text: job.task, href: link('/jobs', { task: job.task }) }]}/>
    <${Head} job=${job} reload=${reload}/>
    <div class="grid">
      ${isWaiting && html`<${WhyOf} job=${job}/>`}
      ${isRunning && html`<${Present} job=${job} progress=${progress}/>`}
      <${Life} history=${history}/>
      <div class="c8 stack">
        ${error && html`<${Card} title="Error" about=${[error.type, error.exit_code !== undefined && `exit code ${error.exit_code}`, error.signal, error.http_status && `status ${error.http_status}`].filter(Boolean).join(', ')}>
          <pre tabindex="0" role="region" aria-label="The error">${legible([error.message, error.traceback].filter(Boolean).join('\n\n'))}</pre></${Card}>`}
        <${Output} id=${job.id} streams=${listStreams(output, progress, isRunning)} isRunning=${isRunning}/>
        <${Card} title="Payload"><${Payload} value=${job.payload} label="The payload"/></${Card}>
        ${job.result !== undefined && html`<${Card} title="Result"><${Json} value=${job.result} label="The result"/></${Card}>`}
        ${attempts.some(({ outcome }) => outcome !== 'completed') && html`<${Attempts} attempts=${attempts}/>`}</div>
      <div class="c4 stack"><${Facts} job=${job}/><${Hands} items=${history.items}/><${Peers} job=${job} isEnded=${ENDED.includes(job.state)}/></div></div>`;
}

// The request of each action as a command: {'curl: retry': text}.
const listCurls = (actions) => Object.fromEntries(actions.map(({ label, action }) => [
  `curl: ${label.replace('…', '').toLowerCase()}`, asCurl(action().request, features.value.tokens)]));

function Head({ job, reload }) {
  const actions = listActions(job, reload);
  useKeys(actions.map(({ key, label, action }) => ({ keys: key, help: label.replace('…', '').toLowerCase(), group: 'This job', run: () => { perform(action()); } })), [job]);
  return html`<div class="head"><h1 class="mono id">${job.id}</h1><${State} state=${job.state}/>
    <div class="acts"><${CopyAs} request=${{ method: 'GET', path: `/v1/jobs/${job.id}` }} others=${{ schedo: `schedo jobs show ${job.id}`, json: JSON.stringify(job, null, 2), ...listCurls(actions) }}/>
      ${actions.map((each) => html`<${Action} ...${each} title=${`Key: ${each.key}`}/>`)}</div></div>`;
}

// Why it waits; asked again when its queue or the workers change.
function WhyOf({ job }) {
  const [why, error, reload] = useData(() => get(`/v1/jobs/${job.id}/why`), [job.id, job.state, job.scheduled_at]);
  const asked = useRef(0);
  const again = () => {
    if (performance.now() - asked.current < WHY_MS) return;
    asked.current = performance.now();
    reload();
  };
  useLive(['queues', 'workers'], reload);
  useEvent('queues', (data) => (!data.queues || data.queues.some((each) => each.name === job.queue)) && again(), [job.id]);
  useEvent('workers', again, [job.id]);
  if (error && !why) return html`<div class="c12"><${Failure} error=${error} what="Why it waits" again=${reload}/></div>`;
  return why ? html`<${Why} why=${why}/>` : null;
}

// The progress of the running attempt: read once, and again when the stream tells that a report has come.
function useProgress(job, isRunning) {
  const [seen, setSeen] = useState(null);
  const read = () => get(`/v1/jobs/${job.id}/progress`).then(({ items }) => setSeen((before) => takeProgress(before, items)), () => {});
  useEffect(() => { if (isRunning) read(); else setSeen(null); }, [job.id, job.attempt, isRunning]);
  useEvent('progress', (data) => { if (isRunning && data.id === job.id) read(); }, [job.id, isRunning]);
  useEvent('missed', () => { if (isRunning) read(); }, [job.id, isRunning]);
  return seen;
}

function Present({ job, progress }) {
  const ran = Math.max(0, instant(tick.value?.now ?? job.started_at) - instant(job.started_at));
  return html`<div class="why now c12"><h2>It runs</h2><p>for <b>${duration(ran)}</b>${job.worker && html` on <a href=${link(`/workers/${encodeURIComponent(job.worker)}`)}>${job.worker}</a>`}${job.timeout && `, of at most ${job.timeout}`}${job.cancel_requested_at && html`; it was asked to stop at <${Time} at=${job.cancel_requested_at}/>`}</p>
    ${progress?.percent !== undefined && html`<progress max="100" value=${progress.percent} aria-label="Progress"></progress> <b>${Math.floor(progress.percent)} %</b>`}
    ${progress?.message && html` <span class="muted">${legible(progress.message)}</span>`}</div>`;
}

function Life({ history }) {
  if (!ENDED.includes(history.state)) tick.value; // what goes on grows each second
  return html`<${Card} title="Its life" about="widths grow with the logarithm of the time, so microseconds and days fit one line"><${LifeLine} life=${tellLife(history)}/>
    <div class="foot"><span></span><${TableToggle} caption="What happened to the job" head=${['What', 'When', 'Attempt', 'Worker', 'Outcome', 'Ran', 'By']} rows=${() => history.items.map(tellEntry)}/></div></${Card}>`;
}

const tellEntry = (item) => [
  item.what === 'finished' ? item.what : nameOf(item), when(instant(item.at), 6), String(item.attempt ?? ''), item.worker ?? '', item.outcome ?? '', item.ran ? duration(micros(item.ran)) : '', [item.by, item.via && `via ${item.via}`].filter(Boolean).join(', ')];

const ErrorText = ({ error }) => {
  const text = legible(error.message || error.type);
  return html`<span title=${text}>${text}</span>`;
};

const COLUMNS = [
  { title: 'No.', number: true, cell: (each) => each.attempt },
  { title: 'Outcome', cell: (each) => each.outcome },
  { title: 'Started', cell: (each) => html`<${Time} at=${each.started_at} digits=${6}/>` },
  { title: 'Ran', number: true, cell: (each) => (each.ran ? duration(micros(each.ran)) : each.started_at ? duration(instant(each.ended_at) - instant(each.started_at)) : '–') },
  { title: 'Worker', cell: (each) => each.worker ?? '–' },
  { title: 'Error', className: 'cut muted', cell: (each) => each.error && html`<${ErrorText} error=${each.error}/>` },
];
const Attempts = ({ attempts }) => html`<${Card} title="Attempts">
  <${Table} caption="Ended attempts" columns=${COLUMNS} rows=${attempts} keyOf=${(each) => each.attempt}/></${Card}>`;
