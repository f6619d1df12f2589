// Log in with a token. It becomes a cookie that scripts cannot read; the page never keeps it.
import { api, isLoggedOut } from '../lib/api.js';
import { base, html, useEffect, useRef, useState } from '../lib/base.js';
import { followAgain } from '../lib/live.js';
import { loadMe, me } from '../lib/me.js';
import { link } from '../lib/router.js';
import { Dialog } from '../parts/dialog.js';

// Only a path of this page, so that a link cannot lead elsewhere after the login.
const safe = (next) => (/^\/(?!\/)/.test(next ?? '') ? next : '/');

// goOn: what follows a login above a screen; without it the page starts anew, with the cookie.
export default function Login({ query, goOn }) {
  const [error, setError] = useState('');
  const [isBusy, setBusy] = useState(false);
  const field = useRef();
  const [isAsked, setAsked] = useState(false); // whether the server has said who this is, or cannot
  const access = me.value?.access;
  useEffect(() => { loadMe().then(() => setAsked(true)); }, []); // nothing else of the page asks before a login
  useEffect(() => field.current?.focus(), [isAsked]); // an `autofocus` is refused if anything has the focus
  const logIn = async (proof) => {
    setBusy(true);
    try {
      await api('POST', '/v1/session', proof);
      if (goOn) goOn();
      else location.replace(base + safe(query.next).slice(1));
    } catch (failure) {
      setError(failure.text ?? failure.message);
      setBusy(false);
    }
  };
  const submit = (event) => {
    event.preventDefault();
    logIn({ token: new FormData(event.target).get('token').trim() });
  };
  useEffect(() => { // the one-time code of `schedo open`, which leaves the address at once
    const link = /^#link=([\w-]+)$/.exec(location.hash)?.[1];
    if (!link) return;
    history.replaceState(null, '', location.pathname + location.search);
    logIn({ link });
  }, []);
  if (!isAsked) return html`<h1 class="vh">Log in to schedo</h1>`;
  // A server without tokens would refuse each one.
  if (access === 'open') {
    return html`<div class="login"><section class="card" aria-labelledby="login"><div class="body">
      <h1 id="login">There is no login</h1>
      <p>This server asks for no token, so everyone may do everything.</p>
      <a class="btn primary" href=${link(safe(query.next))}>Go on</a></div></section></div>`;
  }
  return html`<div class="login"><section class="card" aria-labelledby="login"><form class="body" onSubmit=${submit}>
    <${goOn ? 'h2' : 'h1'} id="login">Log in to schedo</>
    ${goOn && html`<p>Your session has ended. What you have typed stays here.</p>`}
    <p class="muted">${access === 'anonymous' ? 'Without a token you may only look' : 'This server asks for a token'}. A token is exchanged for a cookie that lasts 12 hours.</p>
    <input type="text" name="name" value="schedo" autocomplete="username" hidden/>
    <label class="field">Token<input ref=${field} type="password" name="token" required autocomplete="current-password" spellcheck=${false}
      aria-invalid=${error ? 'true' : undefined} aria-describedby=${error ? 'login-error' : undefined}/></label>
    ${error && html`<p id="login-error" class="failure" role="alert">${error}</p>`}
    <button type="submit" class="btn primary" disabled=${isBusy}>Log in</button>
    <p class="muted small">On the server's machine, <code>schedo open</code> opens this page without typing a token.</p>
  </form></section></div>`;
}

// The login above a screen with something typed, which it leaves as it is.
export function LoginAgain() {
  const close = () => { isLoggedOut.value = false; }; // the next request that is refused opens it again
  const goOn = () => {
    close();
    loadMe();
    followAgain();
  };
  return html`<${Dialog} title="Log in again" className="again" onClose=${close}><${Login} query=${{}} goOn=${goOn}/></${Dialog}>`;
}
