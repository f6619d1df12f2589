// The small parts of every screen: cards, times, and what is said when there is nothing to show.
import { html, styled, useEffect, useLayoutEffect, useRef, useState } from '../lib/base.js';
import { clock, day, duration, instant, iso, now, when } from '../lib/format.js';

// How full the concurrency of a queue is. A queue without one has no bar: there is nothing that it could fill.
export const Gauge = ({ queue: { running, concurrency } }) => typeof concurrency === 'number' && html`<span class="bar" role="img" aria-label=${`${running} of ${concurrency} run`}><i ref=${styled({
  width: `${Math.min(100, (running / Math.max(1, concurrency)) * 100)}%`, background: running >= concurrency ? 'var(--st-queued)' : 'var(--st-running)',
})}></i></span>`;

// An instant of the API (text) or in microseconds. full: with its day, also for today.
export function Time({ at, digits = 0, full = false }) {
  if (at === null || at === undefined) return html`<span class="muted">–</span>`;
  const micros = typeof at === 'string' ? instant(at) : at;
  const text = full ? `${day(micros)} ${clock(micros, digits)}` : when(micros, digits);
  const whole = typeof at === 'string' ? at : iso(at);
  return html`<time class="mono" dateTime=${whole} title=${whole}>${text}</time>`;
}

// How long ago an instant was, or how long it is until then; it counts on by itself.
export function Since({ at, each = 1000 }) {
  const [, again] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) again((n) => n + 1); }, each);
    return () => clearInterval(timer);
  }, [each]);
  const micros = typeof at === 'string' ? instant(at) : at;
  return html`<span class="since">${duration(Math.abs(now() - micros))}</span>`;
}

// A card. about: what one of its marks means; more: {href, text} of the screen with all of it.
export const Card = ({ title, about, more, span = 12, children, actions, level = 2, id }) => html`
  <section class=${`card c${span}`} aria-labelledby=${id ?? `card-${title.replace(/\W+/g, '-')}`}>
    <header><h2 id=${id ?? `card-${title.replace(/\W+/g, '-')}`}>${title}</h2>
      ${about && html`<span class="about">${about}</span>`}<span class="grow"></span>${actions}
      ${more && html`<a class="more" href=${more.href}>${more.text}</a>`}</header>
    <div class="body">${children}</div></section>`;

// Nothing to show, and why that is well or what to do.
export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

export const Loading = () => html`<div class="empty" aria-busy="true">Reading…</div>`;

// What could not be read, by its ApiError, and a way to try again.
export const Failure = ({ error, what, again }) => html`<div class="failure" role="alert">
  <b>${what ?? 'This'} could not be read.</b> <span>${error.text ?? error.message}</span>
  ${again && html` <button class="btn small" onClick=${again}>Try again</button>`}</div>`;

export const Tag = ({ children }) => html`<span class="tag">${children}</span>`;

// A button that copies a text; without a clipboard (plain HTTP) it selects the text in a field.
export function Copy({ text, label = 'Copy', className = 'btn' }) {
  const [done, setDone] = useState('');
  const field = useRef();
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone('Copied');
    } catch {
      if (!field.current) return; // the button has gone meanwhile
      field.current.hidden = false;
      field.current.select();
      const isCopied = document.execCommand('copy');
      setDone(isCopied ? 'Copied' : 'Press Ctrl+C');
      field.current.hidden = isCopied;
    }
    setTimeout(() => setDone(''), 2000);
  };
  return html`<span class="copy"><button type="button" class=${className} title=${text} onClick=${copy}>${done || label}</button>
    <textarea ref=${field} hidden readonly aria-label=${label} value=${text} onBlur=${(event) => { event.target.hidden = true; }}></textarea></span>`;
}

// Call a function again and again while the page is seen, for what no event tells. deps: of the function.
export const useEvery = (ms, again, deps = []) => useEffect(() => {
  const timer = setInterval(() => { if (!document.hidden) again(); }, ms);
  return () => clearInterval(timer);
}, deps);

const AGAIN_MS = 3_000;

// Read data for a screen: [value, error, reload]. It is read again when a dependency changes; if that fails, the old value goes.
// If it could not be read again as it is now, because the server was away or too busy, that is tried until it works.
export function useData(read, deps) {
  const [found, setFound] = useState([undefined, null]);
  const live = useRef(0);
  const isOld = useRef(false); // the value is of other dependencies
  const reload = () => {
    live.current += 1;
    const turn = live.current;
    return read().then(
      (value) => {
        if (turn !== live.current) return;
        isOld.current = false;
        setFound([value, null]);
      },
      (error) => {
        if (turn !== live.current || error.name === 'AbortError') return;
        setFound(([value]) => [isOld.current ? undefined : value, error]);
        if (!isOld.current && (!error.status || error.status >= 500)) setTimeout(() => { if (turn === live.current && !document.hidden) reload(); }, AGAIN_MS);
      },
    );
  };
  useLayoutEffect(() => { // before the first paint, which would only delay the request
    isOld.current = true;
    reload();
    return () => { live.current += 1; };
  }, deps);
  return [...found, reload];
}
