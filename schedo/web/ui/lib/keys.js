// Keys of the page. A binding is {keys, help, run, group}; keys: "j", "g o", "?", "Mod+k".
import { signal, useLayoutEffect } from './base.js';
import { singleKeys } from './prefs.js';

export const bindings = signal([]);
const SEQUENCE_MS = 1200;
let first = { key: '', at: 0 };

export function bind(list) {
  bindings.value = [...bindings.peek(), ...list];
  return () => { bindings.value = bindings.peek().filter((each) => !list.includes(each)); };
}

// Bind keys while a component is shown; the last one that binds a key gets it.
// A key works as soon as its button is seen.
export const useKeys = (list, deps = []) => useLayoutEffect(() => bind(list), deps);

const isTyping = (element) => element?.closest?.('input, textarea, select, [contenteditable]') !== null
  && element?.closest?.('input[type=checkbox]') === null;

function name(event) {
  if ((event.metaKey || event.ctrlKey) && !event.altKey) return 'Mod+' + event.key.toLowerCase();
  return event.altKey ? '' : event.key;
}

document.addEventListener('keydown', (event) => {
  // Who holds a key means it once; a held Enter would answer the question that it has asked.
  if (event.repeat && !'jk'.includes(event.key)) {
    if (event.key === 'Enter' && event.target.type !== 'textarea') event.preventDefault();
    return;
  }
  const pressed = name(event);
  const hasModifier = pressed.startsWith('Mod+');
  if (!pressed || event.isComposing || (!hasModifier && (!singleKeys.peek() || isTyping(event.target)))) return;
  if (document.querySelector('dialog[open]')) return; // a dialog has keys of its own
  const isSecond = !hasModifier && event.timeStamp - first.at < SEQUENCE_MS && bindings.peek().some((each) => each.keys.startsWith(`${first.key} `));
  const keys = isSecond ? `${first.key} ${pressed}` : pressed;
  const found = bindings.peek().findLast((each) => each.keys === keys);
  first = { key: found ? '' : pressed, at: event.timeStamp };
  if (!found || found.run(event) === false) return;
  event.preventDefault();
});
