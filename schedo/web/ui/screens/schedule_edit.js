// Change a schedule, or make one: what the rule means while it is typed, and what will be different before it is saved.
import { api, get } from '../lib/api.js';
import { html, useState } from '../lib/base.js';
import { go, link } from '../lib/router.js';
import { bodyOf, hasMask, isRounded } from '../lib/schedules.js';
import { CopyAs, perform } from '../parts/action.js';
import { Card, Crumbs, Failure, Loading, useData } from '../parts/basics.js';
import { CronPreview, useExplanation } from '../parts/cron_preview.js';
import { hrefOf, pathOf } from '../parts/schedule_actions.js';
import { ScheduleForm } from '../parts/schedule_form.js';

const NEW = { cron: '', tz: Intl.DateTimeFormat().resolvedOptions().timeZone, task: '', payload: null };
const show = (value) => (value === undefined ? 'not set' : typeof value === 'string' ? value : JSON.stringify(value));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// [{field, before, after}] between what is saved and what the form has.
export function differences(saved, body) {
  return [...new Set([...Object.keys(saved), ...Object.keys(body)])].filter((field) => !same(saved[field], body[field]))
    .map((field) => ({ field, before: saved[field], after: body[field] }));
}

const Difference = ({ items }) => html`<${Card} title="What changes" about=${items.length ? 'nothing is saved yet' : undefined}>${items.length
  ? html`<dl class="changes">${items.map(({ field, before, after }) => html`<dt>${field}</dt><dd>${before !== undefined && html`<del>${show(before)}</del>`} <ins>${show(after)}</ins></dd>`)}</dl>`
  : html`<p class="muted">Nothing differs from what is saved.</p>`}</${Card}>`;

// The first message about each field, by the name that its pointer begins with.
const byField = (error) => Object.fromEntries((error?.problem?.errors ?? []).map(({ pointer, detail }) => [(pointer ?? '').split('/')[1] ?? '', detail]).reverse());

function reasonAgainst(name, body, saved, isReadable) {
  if (!name) return 'It needs a name.';
  if (!body.task) return 'It needs a task.';
  if (!(body.cron || body.every || body.at)) return 'It needs a rule.';
  if (!isReadable) return 'The payload is not JSON.';
  if (isRounded(body)) return 'The payload has a number that a browser cannot keep exactly. Use schedo schedules put.';
  if (hasMask(body) && !same(body.payload, saved?.payload)) return 'Type the secret again: *** stands for it only as long as the payload stays as it is.';
  return '';
}

const isTaken = (name) => get(pathOf(name)).then(() => true, (error) => error.status !== 404);

function Form({ schedule }) {
  const saved = schedule ? bodyOf(schedule) : null;
  const [body, setBody] = useState(saved ?? NEW);
  const [name, setName] = useState(schedule?.name ?? '');
  const [errors, setErrors] = useState({});
  const [isReadable, setReadable] = useState(true);
  const [isBusy, setBusy] = useState(false);
  const explanation = useExplanation(body, name);
  const items = differences(saved ?? {}, body);
  const against = reasonAgainst(name, body, saved, isReadable);
  const request = { method: 'PUT', path: pathOf(name), body };
  const save = async (event) => {
    event.preventDefault();
    if (against || isBusy || !items.length) return;
    setBusy(true);
    if (!saved && (await isTaken(name))) setErrors({ name: 'There is a schedule of this name.' });
    else await put();
    setBusy(false);
  };
  const put = () => perform({
    request, done: saved ? `${name} is changed.` : `${name} is made.`,
    undo: () => (saved ? api('PUT', pathOf(name), saved) : api('DELETE', pathOf(name))),
    after: () => go(hrefOf(name)), onError: (error) => setErrors(byField(error)),
  });
  return html`<form onSubmit=${save}><div class="head"><h1 class="wrap">${schedule ? `Edit ${schedule.name}` : 'New schedule'}</h1>
      <div class="acts"><${CopyAs} request=${request} others=${{ json: JSON.stringify(body, null, 2) }}/>
        <a class="btn" href=${schedule ? hrefOf(schedule.name) : link('/schedules')}>Go back</a>
        <button class="btn primary" disabled=${Boolean(against) || isBusy || !items.length} title=${against}>${schedule ? 'Save' : 'Make it'}</button></div></div>
    ${schedule && schedule.owner !== 'api' && html`<p class="muted">${schedule.owner} declares this schedule. A change by hand stays until the declaration itself changes.</p>`}
    <div class="grid"><div class="c7 stack"><${ScheduleForm} body=${body} name=${name} onName=${schedule ? null : setName} onChange=${setBody} errors=${errors} setReadable=${setReadable}/></div>
      <div class="c5 stack">${body.cron !== undefined && html`<${CronPreview} body=${body} state=${explanation} onSpread=${(cron) => setBody({ ...body, cron })}/>`}
        <${Difference} items=${items}/>${against && items.length > 0 && html`<p class="muted">${against}</p>`}</div></div></form>`;
}

export default function ScheduleEdit({ params: { name } }) {
  const [schedule, error, reload] = useData(() => (name ? get(pathOf(name)) : Promise.resolve(null)), [name]);
  const crumbs = [{ text: 'Schedules', href: link('/schedules') }, ...(name ? [{ text: name, href: hrefOf(name) }, { text: 'edit' }] : [{ text: 'new' }])];
  if (error && !schedule) return html`<h1 class="wrap">Edit ${name}</h1><${Failure} error=${error} what="The schedule" again=${reload}/>`;
  if (schedule === undefined) return html`<h1 class="wrap">Edit ${name}</h1><${Loading}/>`;
  return html`<${Crumbs} items=${crumbs}/><${Form} schedule=${schedule}/>`;
}
