// A note that may be given with an action: the field of its question, and the body that has it.
import { html, signal } from '../lib/base.js';

// Return {question, request} of an action that takes a note; both follow what is typed.
export function withNote({ path, title, text, verb, label = 'Note', hint }) {
  const note = signal('');
  const request = {
    method: 'POST',
    path,
    get body() { return note.value.trim() ? { note: note.value.trim() } : {}; },
  };
  const children = html`<label class="field">${label}<input type="text" maxlength="500" placeholder=${hint}
    onInput=${(event) => { note.value = event.target.value; }}/></label>`;
  return { request, ask: { title, text, verb, children } };
}
