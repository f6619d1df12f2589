// The small parts of every screen: cards, states, times, and what is said when there is nothing to show.
import { html, styled, useEffect, useLayoutEffect, useRef, useState } from '../lib/base.js';
import { clock, day, duration, instant, iso, now, when } from '../lib/format.js';
import { STATES } from '../lib/words.js';

// A form for each state, so that colour is never the only sign.
const stroke = (d, width = 1.6) => html`<path d=${d} fill="none" stroke="currentColor" stroke-width=${width}
  stroke-linecap="round" stroke-linejoin="round"/>`;
const ring = html`<circle cx="7" cy="7" r="5.2" fill="none" stroke="currentColor" stroke-width="1.6"/>`;
const GLYPHS = {
  scheduled: [ring, stroke('M7 4.2V7l2 1.4', 1.5)],
  blocked: stroke('M4.5 3v8M9.5 3v8', 2.2),
  queued: stroke('M2 4h10M2 7h10M2 10h6', 1.7),
  running: html`<path d="M4 2.6v8.8L11.4 7z" fill="currentColor"/>`,
  retrying: stroke('M11.5 7a4.5 4.5 0 1 1-1.4-3.2M11.7 1.8v2.8H8.9'),
  completed: stroke('M2.5 7.4l3 3 6-6.6', 1.9),
  failed: stroke('M3.3 3.3l7.4 7.4M10.7 3.3l-7.4 7.4', 1.9),
  cancelled: [ring, stroke('M3.6 10.4l6.8-6.8')],
  expired: stroke('M3.5 2h7M3.5 12h7M4 2c0 3 6 4.5 6 10M10 2c0 3-6 4.5-6 10', 1.4),
};

export const Glyph = ({ state }) => html`<svg class="glyph" viewBox="0 0 14 14" aria-hidden="true"
  ref=${styled({ color: `var(--st-${state})` })}>${GLYPHS[state]}</svg>`;

// A job's state: glyph, word and colour.
export const State = ({ state }) => html`<span class="state" title=${STATES[state] ? `The job ${STATES[state]}.` : undefined}
  ref=${styled({ color: `var(--st-${state})` })}><${Glyph} state=${state}/>${state}</span>`;

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

// The way from the screen to its list: [{text, href}].
export const Crumbs = ({ items }) => html`<nav class="crumbs" aria-label="Path">${items.map(({ text, href }, at) => html`
  ${at ? html`<span aria-hidden="true">›</span>` : null}${href ? html`<a href=${href}>${text}</a>` : html`<span>${text}</span>`}`)}</nav>`;

export const Tag = ({ children }) => html`<span class="tag">${children}</span>`;

// A button that copies a text; without a clipboard (plain HTTP) it selects the text in a field, which stays until it is left.
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

// Read data for a screen: [value, error, reload]. It is read again when a dependency changes; if that fails, there is no value:
// that of the other dependencies would be taken for what was asked for.
export function useData(read, deps) {
  const [found, setFound] = useState([undefined, null]);
  const live = useRef(0);
  const isOld = useRef(false); // whether the value is that of other dependencies
  const reload = () => {
    live.current += 1;
    const turn = live.current;
    return read().then(
      (value) => {
        if (turn !== live.current) return;
        isOld.current = false;
        setFound([value, null]);
      },
      (error) => turn === live.current && error.name !== 'AbortError' && setFound(([value]) => [isOld.current ? undefined : value, error]),
    );
  };
  useLayoutEffect(() => { // before the first paint, which would only delay the request
    isOld.current = true;
    reload();
    return () => { live.current += 1; };
  }, deps);
  return [...found, reload];
}
