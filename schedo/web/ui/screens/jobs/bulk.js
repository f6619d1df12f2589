// What can be done to the selected jobs, or to all that match: first a count, then a question, then an operation.
import { api, asCurl, get, post } from '../../lib/api.js';
import { html, useEffect, useState } from '../../lib/base.js';
import { count, instant, now, plural, when } from '../../lib/format.js';
import { UNDO } from '../../lib/job_actions.js';
import { CHANGES, filtersOf, toParameters, toWhere } from '../../lib/job_query.js';
import { features, may } from '../../lib/me.js';
import { isAt, link, place, setQuery } from '../../lib/router.js';
import { Time } from '../../parts/basics.js';
import { State } from '../../parts/state.js';
import { confirm } from '../../parts/dialog.js';
import { toast } from '../../parts/toasts.js';

const TYPED_FROM = 1000; // jobs: then the number must be typed
const SAMPLE = 5;
const VERBS = {
  retry: { label: 'Retry', done: 'retried' }, run: { label: 'Run now', done: 'made due' },
  cancel: { label: 'Cancel', done: 'cancelled', danger: true }, delete: { label: 'Delete', done: 'deleted', danger: true },
};

const Sample = ({ jobs }) => jobs.length > 0 && html`<ul class="sample" aria-label="Some of them">${jobs.map((job) => html`<li>
  <${State} state=${job.state}/> <span class="mono">${job.id}</span> ${job.task} <${Time} at=${job.scheduled_at}/></li>`)}</ul>`;

// Ask for an operation on all jobs that match: the exact number and some of them. Returns the operation; null if there is none,
// or if the user has left the screen meanwhile: then a message leads to it. at: of the condition; note: what the question says, too.
export async function plan(query, action, { danger, at = now(), note = '' } = {}) {
  const from = place.peek();
  const { where, reason } = toWhere(query, action, at);
  if (reason) throw new Error(reason);
  const [{ matched, counted_since: since }, page] = await Promise.all([
    post('/v1/operations', { action, where, dry_run: true }),
    get('/v1/jobs', { query: { state: CHANGES[action].join(','), ...toParameters(query, at), limit: SAMPLE } }),
  ]);
  if (!matched) throw new Error(`No job that matches can be ${VERBS[action].done}.`);
  const jobs = `${VERBS[action].label.replace(' now', '')} ${plural(matched, 'job')}`;
  // A count that took too long has left out the older jobs; then so does the operation.
  const body = { action, where: since ? { ...where, created_after: since } : where, expected_count: matched };
  const isSure = await confirm({
    from, title: `${jobs}?`, verb: jobs, danger, type: matched >= TYPED_FROM ? String(matched) : undefined, request: { path: '/v1/operations', body },
    text: since ? `${count(matched)} of the jobs created since ${when(instant(since))} match now. To count the older ones takes too long, so they are left alone.`
      : `${count(matched)} match now. Jobs that come to match later are left alone.${note}`, children: html`<${Sample} jobs=${page.items}/>`,
  });
  if (!isSure) return null;
  const operation = await post('/v1/operations', body);
  if (isAt(from)) return operation;
  toast(html`The operation has begun: <a href=${link('/jobs', { operation: operation.id })}>${jobs}</a>.`);
  return null;
}

const WORKERS = 4; // requests at a time

// Do something to each job; returns those to which it was done, and the first error.
async function forEach(jobs, act) {
  const done = [];
  let error = null;
  const rest = [...jobs];
  const work = async () => {
    for (let job = rest.pop(); job; job = rest.pop()) {
      try {
        await act(job);
        done.push(job);
      } catch (found) {
        error ??= found;
      }
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
  return { done, error };
}

const requestFor = (action) => (job) => (action === 'delete' ? { method: 'DELETE', path: `/v1/jobs/${job.id}` } : { path: `/v1/jobs/${job.id}:${action}` });
const send = ({ method = 'POST', path }) => api(method, path, method === 'POST' ? {} : undefined);

// Put back the jobs that an action has changed.
async function takeBack(jobs, action) {
  const { done, error } = await forEach(jobs, UNDO[action]);
  if (error) throw new Error(`${count(jobs.length - done.length)} of ${plural(jobs.length, 'job')}: ${error.text ?? error.message}`);
}

// Do something to each job, with a way back, after a question if one is asked; return whether it was done.
export async function changeEach(jobs, action, asked) {
  const { label, danger, done: wasDone } = VERBS[action];
  const request = requestFor(action);
  const curl = jobs.map((job) => asCurl(request(job), features.value.tokens)).join('\n');
  const verb = `${label} ${plural(jobs.length, 'job')}`;
  if (asked && !(await confirm({ title: `${verb}?`, verb, danger, curl, children: html`<${Sample} jobs=${jobs.slice(0, SAMPLE)}/>`, ...asked }))) return false;
  const { done, error } = await forEach(jobs, (job) => send(request(job)));
  const waiting = done.filter((job) => job.state !== 'running');
  const undo = UNDO[action] && waiting.length ? () => takeBack(waiting, action) : undefined;
  if (done.length) toast(`${plural(done.length, 'job')} ${done.length === 1 ? 'was' : 'were'} ${wasDone}.`, { undo, curl });
  if (error) toast(`${count(jobs.length - done.length)} not: ${error.text ?? error.message}`, { tone: 'bad' });
  return true;
}

export function Selection({ query, rows, selected, select, reload, hasMore }) {
  const [isAll, setAll] = useState(false);
  const [busy, setBusy] = useState('');
  const chosen = rows.filter((job) => selected.has(job.id));
  const canBeAll = hasMore && chosen.length === rows.length && Object.keys(filtersOf(query)).length > 0;
  useEffect(() => { if (!canBeAll) setAll(false); }, [canBeAll]); // who selects the rows again means these
  if (!chosen.length) return null;
  const whole = isAll && canBeAll;
  const run = async (action) => {
    setBusy(action);
    try {
      await (whole ? runAll(action) : runSome(action));
    } catch (error) {
      toast(error.text ?? error.message, { tone: 'bad' });
    }
    setBusy('');
  };
  const runAll = async (action) => {
    const operation = await plan(query, action, VERBS[action]);
    if (operation) setQuery({ operation: operation.id });
  };
  const runSome = async (action) => {
    const from = place.peek();
    const jobs = chosen.filter((job) => CHANGES[action].includes(job.state));
    const hasRunning = action === 'cancel' && jobs.some((job) => job.state === 'running');
    const text = hasRunning ? 'Some of them run: their workers are asked to stop them, and that cannot be undone.' : 'This cannot be undone.';
    if (!(await changeEach(jobs, action, (action === 'delete' || hasRunning) && { text }))) return;
    select(new Set());
    if (action === 'delete' && place.peek() === from) reload(); // it begins at the first page
  };
  const isPossible = (action) => whole || chosen.some((job) => CHANGES[action].includes(job.state));
  return html`<div class="selection" role="region" aria-label="Selected jobs"><b>${whole ? 'All that match' : `${chosen.length} on this page`}</b>
    ${canBeAll && html`<button class="btn small" aria-pressed=${whole} onClick=${() => setAll(!whole)}>All that match</button>`}
    <span class="grow"></span>${Object.entries(VERBS).filter(([action]) => may(`${action}_job`) && isPossible(action)).map(([action, { label, danger }]) => html`
      <button class=${`btn small ${danger ? 'danger' : ''}`} disabled=${busy !== ''} aria-busy=${busy === action} onClick=${() => run(action)}>${label}${whole ? '…' : ''}</button>`)}
    <button class="btn small quiet" onClick=${() => select(new Set())}>Select none</button></div>`;
}
