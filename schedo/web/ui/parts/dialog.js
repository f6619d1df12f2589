// Dialogs, and the question before an action that cannot be taken back.
import { asCurl } from '../lib/api.js';
import { effect, html, signal, useLayoutEffect, useRef, useState } from '../lib/base.js';
import { features } from '../lib/me.js';
import { place } from '../lib/router.js';
import { Copy } from './basics.js';

// A modal dialog; it closes with Escape and gives the focus back. onClose is called in any case.
// The focus goes to the element with data-first, or to the first that can have it.
export function Dialog({ title, onClose, children, className = '' }) {
  const box = useRef();
  // Before the next key, which would go to what is behind it.
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    box.current.querySelector('[data-first]')?.focus();
    // What is behind the dialog can have the focus only when it is gone.
    return () => queueMicrotask(() => before?.focus?.());
  }, []);
  const outside = (event) => { if (event.target === box.current) onClose(); };
  // The browser tells of the close by Escape only after it, and a fast key would be lost: so the page hears of the key.
  return html`<dialog ref=${box} class=${className} aria-label=${title} onCancel=${onClose} onClose=${onClose} onMouseDown=${outside}>
    <div class="dialog">${children}</div></dialog>`;
}

const question = signal(null);
let answered = Promise.resolve(); // the last question; the next one waits for it

// Ask before an action; resolves to whether it shall be done.
// question: {title, text, verb, danger, request: {method, path, body} or curl: the commands, type: a text that must be typed, children,
//            from: the place that it is about, by default the present one, no: the other button}
export function confirm(asked) {
  const { from = place.peek() } = asked;
  answered = answered.then(() => new Promise((resolve) => { question.value = { ...asked, from, resolve }; }));
  return answered;
}

// Who goes elsewhere, as by the browser's way back, has answered with no: what the question is about is no longer seen.
effect(() => {
  const asked = question.value;
  if (!asked || asked.from === place.value) return;
  question.value = null;
  asked.resolve(false);
});

// The place of the question in the page.
export function Question() {
  const asked = question.value;
  return asked && html`<${Asked} asked=${asked} key=${asked}/>`;
}

function Asked({ asked }) {
  const [typed, setTyped] = useState('');
  const answer = (isYes) => {
    question.value = null;
    asked.resolve(isYes);
  };
  const curl = asked.curl ?? (asked.request && asCurl(asked.request, features.value.tokens));
  const ready = !asked.type || typed === asked.type;
  const submit = (event) => {
    event.preventDefault();
    if (ready) answer(true);
  };
  return html`<${Dialog} title=${asked.title} onClose=${() => question.value === asked && answer(false)}>
    <form onSubmit=${submit}><h2>${asked.title}</h2>${asked.text && html`<p>${asked.text}</p>`}${asked.children}
      ${asked.type && html`<label class="field">Type <b class="mono">${asked.type}</b> to go on
        <input type="text" autocomplete="off" spellcheck=${false} value=${typed} onInput=${(event) => setTyped(event.target.value)}/></label>`}
      <div class="buttons">${curl && html`<${Copy} text=${curl} label="Copy as curl"/>`}
        <span class="grow"></span><button type="button" class="btn" onClick=${() => answer(false)}>${asked.no ?? 'Go back'}</button>
        <button type="submit" class=${'btn ' + (asked.danger ? 'danger' : 'primary')} disabled=${!ready}>${asked.verb}</button></div>
    </form></${Dialog}>`;
}
