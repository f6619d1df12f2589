// Actions: a button that is busy until the server has answered, says what was done and offers to undo it.
import { api, asCurl } from '../lib/api.js';
import { html, useState } from '../lib/base.js';
import { features, may } from '../lib/me.js';
import { confirm } from './dialog.js';
import { Copy } from './basics.js';
import { toast } from './toasts.js';

// Carry out an action; return the answer, or undefined if it was not done.
// action: {request: {method, path, body}, done: text or (answer) => text, undo: (answer) => promise,
//          undoMs: how long that is offered, ask: a question for confirm(), after: (answer) => void,
//          onError: (error) => void}
export async function perform(action) {
  const { request } = action;
  if (action.ask && !(await confirm({ request, ...action.ask }))) return undefined;
  try {
    const answer = await api(request.method ?? 'POST', request.path, request.body ?? (request.method ? undefined : {}), {
      headers: request.headers,
    });
    const undo = action.undo && (() => action.undo(answer));
    toast(typeof action.done === 'function' ? action.done(answer) : action.done, { undo, shownMs: action.undoMs, curl: asCurl(request, features.value.tokens) });
    action.after?.(answer);
    return answer;
  } catch (error) {
    toast(error.text ?? error.message, { tone: 'bad' });
    action.onError?.(error);
    return undefined;
  }
}

// The button of an action. While it is busy it keeps the focus, which a disabled button would lose. It is left out if the caller may not carry out the operation, or not on these jobs: {queue, task}.
export function Action({ operation, on, label, action, className = '', disabled = false, title }) {
  const [isBusy, setBusy] = useState(false);
  if (operation && !may(operation, on)) return null;
  const run = async () => {
    if (isBusy) return;
    setBusy(true);
    await perform(action());
    setBusy(false);
  };
  return html`<button class=${'btn ' + className} disabled=${disabled} aria-disabled=${isBusy} aria-busy=${isBusy} title=${title} onClick=${run}>${label}</button>`;
}

// A menu of forms in which a request can be copied: {label: text}. curl: the request itself.
export const CopyAs = ({ request, others = {} }) => html`<details class="menu"><summary class="btn">Copy as</summary><div>
  ${request && html`<${Copy} className="item" label="curl" text=${asCurl(request, features.value.tokens)}/>`}
  ${Object.entries(others).map(([label, text]) => html`<${Copy} className="item" label=${label} text=${text}/>`)}</div></details>`;
