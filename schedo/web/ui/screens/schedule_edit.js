// Change a schedule, or make one: what the rule means while it is typed, and what will be different before it is saved.
import { api, isTyped } from '../lib/api.js';
import { html, useEffect, useRef, useState } from '../lib/base.js';
import { differences, errorsOf, isSame, isUnder, pointerOf, withValue } from '../lib/body.js';
import { may, me } from '../lib/me.js';
import { go, isAt, link, place } from '../lib/router.js';
import { bodyOf, hasMask, isExact, isRounded } from '../lib/schedules.js';
import { undoOwn } from '../lib/undo.js';
import { getWritten } from '../lib/written.js';
import { CopyAs, perform } from '../parts/action.js';
import { Card, Empty, Loading, useData } from '../parts/basics.js';
import { Crumbs } from '../parts/crumbs.js';
import { CronPreview, useExplanation } from '../parts/cron_preview.js';
import { Field, idOf } from '../parts/fields.js';
import { useLeaving } from '../parts/leaving.js';
import { hrefOf, pathOf } from '../parts/schedule_actions.js';
import { ScheduleFailure } from '../parts/schedule_failure.js';
import { ScheduleForm, elsewhere } from '../parts/schedule_form.js';

const NEW = { cron: '', tz: Intl.DateTimeFormat().resolvedOptions().timeZone, task: '', payload: null };
const BLANK = { cron: '', every: '', at: '', task: '', payload: null }; // what says nothing about a new one
const REPLACED = 'It was changed by another meanwhile. To save again replaces that: see what changes.';
const DELETED = 'It was deleted by another meanwhile. To save again makes it anew.';
const show = (value) => (value === undefined ? 'not set' : typeof value === 'string' ? value : JSON.stringify(value));

const Difference = ({ items, isNew }) => html`<${Card} title=${isNew ? 'What is made' : 'What changes'} about=${items.length ? 'nothing is saved yet' : undefined}>${items.length
  ? html`<dl class="changes">${items.map(({ field, before, after }) => html`<dt>${field}</dt><dd>${before !== undefined && html`<del>${show(before)}</del>`} <ins>${show(after)}</ins></dd>`)}</dl>`
  : html`<p class="muted">Nothing differs from what is saved.</p>`}</${Card}>`;

function reasonAgainst(name, body, saved, mistakes) {
  if (!name) return 'It needs a name.';
  if (!body.task) return 'It needs a task.';
  if (!(body.cron || body.every || body.at)) return 'It needs a rule.';
  if (mistakes.length) return `${mistakes[0].pointer.slice(1).replaceAll('/', '.')} is not JSON.`;
  if (isRounded(body)) return 'It has a number that a browser cannot keep exactly. Use schedo schedules put.';
  if (hasMask(body) && !(hasMask(saved ?? {}) && body.task === saved.task)) return 'Type the secret: *** stands for one that is saved.';
  return '';
}

// The body of the schedule as it is saved now; null if there is none.
const readSaved = (name) => getWritten(pathOf(name)).then(bodyOf, (error) => {
  if (error.status === 404) return null;
  throw error;
});

// The body as it is typed, and what is wrong with it. rule: what the server says about the rule while it is typed.
function useForm(first) {
  const [body, setBody] = useState(first);
  const [errors, setErrors] = useState([]); // of the last answer, until their fields change
  const [mistakes, setMistakes] = useState([]); // texts that are no JSON
  const latest = useRef(body); // two changes can come before the next drawing
  const replace = (next) => {
    latest.current = next;
    setBody(next);
  };
  return {
    body, errors, mistakes, setErrors, replace,
    set(path, value) {
      replace(withValue(latest.current, path, value));
      setErrors((known) => known.filter((each) => !isUnder(each.pointer, pointerOf(path)) && !isUnder(pointerOf(path), each.pointer)));
    },
    setMistake: (pointer, detail) => setMistakes((known) => [...known.filter((each) => each.pointer !== pointer), ...(detail ? [{ pointer, detail }] : [])]),
  };
}

// After a refusal the focus goes to the first field that is wrong.
function useFirstWrong(errors) {
  const box = useRef();
  useEffect(() => {
    const fields = errors.map((error) => document.getElementById(idOf(error.pointer)));
    if (errors.length) (fields.find(Boolean) ?? box.current.querySelector('.field.wrong :is(input, select, textarea)'))?.focus();
  }, [errors]);
  return box;
}

function Form({ title, schedule, first, wanted }) {
  const [saved, setSaved] = useState(schedule && first);
  const made = useForm(first);
  const [name, setName] = useState(schedule?.name ?? wanted);
  const [isBusy, setBusy] = useState(false);
  const box = useFirstWrong(made.errors);
  const here = place.peek();
  const { body, mistakes, setErrors } = made;
  const explanation = useExplanation(body, name);
  const form = { ...made, errors: [...mistakes, ...made.errors, ...(explanation.error ? errorsOf(explanation.error).filter((each) => each.pointer) : [])] };
  const items = differences(saved ?? BLANK, saved ? body : { ...BLANK, ...body });
  const against = reasonAgainst(name, body, saved, mistakes);
  const hasChanges = mistakes.length > 0 || (schedule ? items.length > 0 : name !== wanted || !isSame(body, first));
  useEffect(() => {
    isTyped.value = hasChanges;
    return () => { isTyped.value = false; };
  }, [hasChanges]);
  useLeaving({ isTyped: hasChanges, isSaving: isBusy, what: schedule ? `Your changes to ${name}` : 'The new schedule' });
  const request = { method: 'PUT', path: pathOf(name), body };
  const save = async (event) => {
    event.preventDefault();
    if (against || isBusy || !items.length) return;
    setBusy(true);
    if (await isUnchanged().catch((error) => setErrors(errorsOf(error)))) await put();
    setBusy(false);
  };
  // A PUT replaces the whole schedule. What another has saved meanwhile is shown first, as a difference.
  const isUnchanged = async () => {
    const present = await readSaved(name);
    if (isSame(present, saved)) return true;
    if (schedule) setSaved(present);
    setErrors([schedule ? { pointer: '', detail: present ? REPLACED : DELETED } : { pointer: '/name', detail: 'There is a schedule of this name.' }]);
    return false;
  };
  const put = () => perform({
    request, done: saved ? `${name} is changed.` : `${name} is made.`,
    undo: saved && !isExact(saved) ? undefined : (answer) => undoOwn(pathOf(name), answer, () => (saved ? api('PUT', pathOf(name), saved) : api('DELETE', pathOf(name)))),
    after: () => isAt(here) && go(hrefOf(name)), onError: (error) => setErrors(errorsOf(error)),
  });
  const rename = (text) => {
    setName(text);
    setErrors((known) => known.filter((each) => each.pointer !== '/name'));
  };
  const nameField = !schedule && html`<${Field} form=${form} path=${['name']} label="Name" hint="letters, digits, dots, underscores and hyphens" input=${(shared) => html`<input type="text" spellcheck=${false} autocomplete="off" ...${shared}
    value=${name} required onInput=${(event) => rename(event.target.value)}/>`}/>`;
  return html`<form ref=${box} onSubmit=${save} novalidate><div class="head above"><h1 class="wrap">${title}</h1>
      <div class="acts"><${CopyAs} request=${request} others=${{ json: JSON.stringify(body, null, 2) }}/>
        <a class="btn" href=${schedule ? hrefOf(schedule.name) : link('/schedules')}>Go back</a>
        <button type="submit" class="btn primary" disabled=${Boolean(against) || !items.length} aria-disabled=${isBusy} aria-busy=${isBusy} title=${against}>${schedule ? 'Save' : 'Make it'}</button></div></div>
    ${schedule && schedule.owner !== 'api' && html`<p class="muted">${schedule.owner} declares this schedule. A change by hand stays until the declaration itself changes.</p>`}
    ${elsewhere(form.errors).map((error) => html`<p class="failure" role="alert"><b>${error.pointer.slice(1).replaceAll('/', '.')}</b> ${error.detail}</p>`)}
    <div class="grid"><div class="c7 stack"><${ScheduleForm} form=${form} name=${nameField}/></div>
      <div class="c5 stack"><${CronPreview} body=${body} state=${explanation} onSpread=${(cron) => form.set(['cron'], cron)}/>
        <div class="above"><${Difference} items=${items} isNew=${!saved}/>${against && items.length > 0 && html`<p class="muted">${against}</p>`}</div></div></div></form>`;
}

// query: of a new schedule its name, or the one from which it is copied.
export default function ScheduleEdit({ params: { name }, query: { name: wanted = '', from } }) {
  const read = name ?? from;
  const [schedule, error, reload] = useData(() => (read ? getWritten(pathOf(read)) : Promise.resolve(null)), [read]);
  const title = name ? `Edit ${name}` : 'New schedule';
  const crumbs = [{ text: 'Schedules', href: link('/schedules') }, ...(name ? [{ text: name, href: hrefOf(name) }, { text: 'edit' }] : [{ text: 'new' }])];
  if (error && !schedule) return html`<${ScheduleFailure} title=${title} name=${read} error=${error} reload=${reload}/>`;
  if (me.value && !may('put_schedule') && !isTyped.value) return html`<${Crumbs} items=${crumbs}/><h1 class="wrap">${title}</h1><${Empty}>Schedules are changed by the role admin. You are ${me.value.name}, ${me.value.role}.</${Empty}>`;
  if (schedule === undefined) return html`<h1 class="wrap">${title}</h1><${Loading}/>`;
  return html`<${Crumbs} items=${crumbs}/><${Form} title=${title} schedule=${name ? schedule : null} first=${schedule ? bodyOf(schedule) : NEW} wanted=${wanted}/>`;
}
