// Short messages at the bottom: what was done, with a way to undo it, and what failed.
import { html, signal } from '../lib/base.js';
import { Copy } from './basics.js';

const SHOWN_MS = 10_000;
const toasts = signal([]);
let number = 0;

// Show a message. undo: a function that takes it back; curl: what was sent, as commands; tone: 'ok' or 'bad'.
export function toast(text, { undo, curl, tone = 'ok', undoText = 'Undo', shownMs = SHOWN_MS } = {}) {
  number += 1;
  const made = { number, text, undo, curl, tone, undoText };
  toasts.value = [...toasts.value.slice(-3), made];
  if (tone !== 'bad') setTimeout(() => dismiss(made), shownMs);
  return () => dismiss(made);
}

const dismiss = (gone) => { toasts.value = toasts.value.filter((each) => each !== gone); };

async function takeBack(made) {
  dismiss(made);
  try {
    await made.undo();
    toast('Taken back.');
  } catch (error) {
    toast(`It was not taken back: ${error.text ?? error.message}`, { tone: 'bad' });
  }
}

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">${toasts.value.map((each) => html`
  <div class=${'toast ' + each.tone} key=${each.number}><span>${each.text}</span>
    ${each.undo && html`<button class="btn small" onClick=${() => takeBack(each)}>${each.undoText}</button>`}
    ${each.curl && html`<${Copy} className="btn small quiet" text=${each.curl} label="Copy as curl"/>`}
    <button class="btn small quiet" aria-label="Dismiss" onClick=${() => dismiss(each)}>✕</button></div>`)}</div>`;
