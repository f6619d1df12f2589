// What can be done with a queue: pause with a note, resume, and change its limits where they are shown; each can be undone.
import { api, get, post } from '../lib/api.js';
import { html, useRef, useState } from '../lib/base.js';
import { legible } from '../lib/legible.js';
import { may } from '../lib/me.js';
import { CHANGED } from '../lib/undo.js';
import { Action, perform } from './action.js';
import { withNote } from './note.js';
import { toast } from './toasts.js';

export const pathOf = (name) => `/v1/queues/${encodeURIComponent(name)}`;

// A queue without jobs and limits, which is in no list.
export const emptyQueue = (name) => ({ name, concurrency: null, paused: false, weight: 1, priority_step: '1m', running: 0, waiting: {} });

export const readQueue = async (name) => (await get('/v1/queues')).items.find((each) => each.name === name) ?? emptyQueue(name);

const pauseBody = (pause) => ({ ...(pause?.note && { note: pause.note }), ...(pause?.until && { until: pause.until }) });
const pauseOf = ({ paused, pause: found }) => JSON.stringify([paused, found]);

// The way back from a pause or a resume, with the note and the end of the pause before it.
export const putBack = (before, after) => async (left) => {
  if (pauseOf(await readQueue(before.name)) !== pauseOf(left)) throw new Error(CHANGED);
  const path = pathOf(before.name);
  await (before.paused ? post(`${path}:pause`, pauseBody(before.pause)) : post(`${path}:resume`));
  after?.();
};

function pause(queue, after) {
  return () => ({
    ...withNote({
      path: `${pathOf(queue.name)}:pause`, title: `Pause the queue ${queue.name}?`, verb: 'Pause', hint: 'why, for the others',
      text: 'No job of it starts until it is resumed. Running jobs go on.',
    }),
    done: `The queue ${queue.name} is paused.`, after,
    undo: putBack(queue, after),
  });
}

const resume = (queue, after) => () => ({
  request: { method: 'POST', path: `${pathOf(queue.name)}:resume`, body: {} },
  done: `The queue ${queue.name} goes on.`, after,
  undo: putBack(queue, after),
});

export const QueueActions = ({ queue, small, reload }) => (queue.paused
  ? html`<${Action} operation="resume_queue" on=${{ queue: queue.name }} label="Resume" className=${small ? 'small' : ''} title=${`Let the jobs of ${queue.name} start again`} action=${resume(queue, reload)}/>`
  : html`<${Action} operation="pause_queue" on=${{ queue: queue.name }} label="Pause…" className=${small ? 'small' : ''} title=${`Start no job of ${queue.name}`} action=${pause(queue, reload)}/>`);

// A limit that becomes a field when it is pressed. Enter or its button saves it; a click beside it is a no, as it is beside a question.
// read: the text as a value, or undefined if it is none.
export function Limit({ queue, field, label, shown, read, reload }) {
  const [text, setText] = useState(null);
  const opened = useRef(null); // the text at first
  const isBack = useRef(false); // whether the keyboard goes on from the button
  const open = (value) => {
    opened.current = value;
    setText(value);
  };
  const close = () => {
    isBack.current = true;
    open(null);
  };
  const goOn = (button) => {
    if (button && isBack.current) button.focus();
    isBack.current = false;
  };
  if (!may('update_queue')) return shown;
  if (text === null) {
    return html`<button class="btn small quiet limit" ref=${goOn} aria-label=${`${label} of ${queue.name}: ${shown}. Change it`} title=${`Change the ${label}`}
      onClick=${() => open(queue[field] === null ? '' : String(queue[field]))}>${shown}</button>`;
  }
  const save = async (event) => {
    event.preventDefault();
    const isTyped = text !== opened.current; // else it would put back what another has changed meanwhile
    const value = read(text.trim());
    if (isTyped && value === undefined) {
      toast(`“${legible(text)}” is not a ${label}.`, { tone: 'bad' });
      return;
    }
    close();
    if (!isTyped || value === queue[field]) return;
    const path = pathOf(queue.name);
    await perform({
      request: { method: 'PATCH', path, body: { [field]: value } }, done: `The ${label} of ${queue.name} is ${value ?? 'without a limit'}.`,
      undo: async () => {
        if ((await readQueue(queue.name))[field] !== value) throw new Error(CHANGED);
        await api('PATCH', path, { [field]: queue[field] }).then(reload);
      },
      after: reload,
    });
  };
  const leave = ({ currentTarget, relatedTarget }) => { // who looks into another window goes on typing
    if (document.hasFocus() && !currentTarget.contains(relatedTarget)) open(null);
  };
  const cancel = (event) => { if (event.key === 'Escape') close(); };
  // The button is for those whose keys for digits have no Enter; pressed, it leaves the focus in the field.
  return html`<form class="limit" onSubmit=${save} onFocusOut=${leave} onKeyDown=${cancel}><input type="text" inputmode=${field === 'priority_step' ? undefined : 'numeric'} aria-label=${`${label} of ${queue.name}`} value=${text} placeholder="no limit"
    ref=${(element) => element && !element.form.contains(document.activeElement) && element.focus()} onInput=${(event) => setText(event.target.value)}/> <button
    type="submit" class="btn small" onMouseDown=${(event) => event.preventDefault()}>Save</button></form>`;
}

export const number = (text) => (text === '' ? null : /^\d+$/.test(text) ? Number(text) : undefined);
