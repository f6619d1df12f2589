// The address of the view: every state that is worth a link is in it.
import { base, signal } from './base.js';

const read = () => ({
  path: '/' + location.pathname.slice(base.length),
  query: Object.fromEntries(new URLSearchParams(location.search)),
});

export const place = signal(read());

// The href of a path of the page: link('/jobs', {state: 'failed'}).
export function link(path, query) {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  const text = new URLSearchParams(pairs).toString();
  return base + path.slice(1) + (text ? '?' + text : '');
}

// Each view that was shown in this tab has a number in its history, which tells how far a step back or forward has gone.
const number = () => history.state ?? 0;
let at = number();
let ask = null;

// Let a function be asked before another screen is shown; it calls the function that it gets, unless the user stays. null: none is asked.
export const guard = (asked) => { ask = asked; };

// Show another view. replace: the step back leaves it out.
export function go(href, { replace = false } = {}) {
  const move = () => {
    at += !replace;
    history[replace ? 'replaceState' : 'pushState'](at, '', href);
    place.value = read();
  };
  if (ask && new URL(href, location).pathname !== location.pathname) ask(move);
  else move();
}

// Whether the view of a place is still shown: what comes late takes nobody back to it.
export const isAt = ({ path }) => place.peek().path === path;

// Change parameters of the view's address; an empty value removes one. It makes no step back unless asked.
export function setQuery(changes, { push = false } = {}) {
  go(link(place.peek().path, { ...place.peek().query, ...changes }), { replace: !push });
}

// Return the parameters of the path if it matches the pattern, such as /jobs/{id}; else null.
export function match(pattern, path) {
  const names = [];
  const parts = pattern.split('/').map((part) => {
    if (!part.startsWith('{')) return part.replace(/[.*+?^$()|[\]\\]/g, '\\$&');
    names.push(part.slice(1, -1));
    return '([^/]+)';
  });
  const found = new RegExp(`^${parts.join('/')}$`).exec(path);
  if (!found) return null;
  try {
    return Object.fromEntries(names.map((name, at) => [name, decodeURIComponent(found[at + 1])]));
  } catch {
    return null; // a percent sign that encodes nothing
  }
}

addEventListener('popstate', () => {
  const step = number() - at;
  const isOther = read().path !== place.peek().path;
  if (ask && step && isOther) {
    // The browser has stepped already, so the question begins with the step in the other direction.
    history.go(-step);
    ask(() => history.go(step));
  } else if (step || isOther) {
    at += step;
    place.value = read();
  }
});

// Follow links within the page without loading it anew. isOurs: whether a path is a view.
export function followLinks(isOurs) {
  document.addEventListener('click', (event) => {
    const anchor = event.target.closest?.('a[href]');
    if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (anchor.target || anchor.hasAttribute('download') || anchor.origin !== location.origin) return;
    if (!anchor.pathname.startsWith(base) || !isOurs('/' + anchor.pathname.slice(base.length))) return;
    if (anchor.pathname === location.pathname && anchor.search === location.search && anchor.hash) return;
    event.preventDefault();
    go(anchor.href);
  });
}
