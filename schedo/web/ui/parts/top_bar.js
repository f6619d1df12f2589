// The bar above all screens: where to go, find, the zone, and whether what is shown is true now.
import { html, useEffect, useRef } from '../lib/base.js';
import { SKEW_SAID, duration, skew } from '../lib/format.js';
import { connection, heardAt } from '../lib/live.js';
import { me } from '../lib/me.js';
import { zone } from '../lib/prefs.js';
import { link, place } from '../lib/router.js';
import { CONNECTION, CONNECTION_HELP } from '../lib/words.js';
import { SCREENS } from '../screens.js';
import { Since } from './basics.js';
import { isHelpOpen, isPaletteOpen } from './later.js';

const Mark = () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="var(--accent)"/>
  <path d="M16 9v7l5 3.5" fill="none" stroke="var(--on-accent)" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round"/>
  <circle cx="16" cy="16" r="10.5" fill="none" stroke="var(--on-accent)" stroke-width="2"/></svg>`;

function Links() {
  const { path } = place.value;
  const bar = useRef();
  useEffect(() => { // on a phone the bar is wider than the screen
    const here = bar.current.querySelector('[aria-current]');
    if (here) bar.current.scrollLeft = here.offsetLeft - (bar.current.clientWidth - here.offsetWidth) / 2;
  }, [path]);
  const isHere = (to) => (to === '/' ? path === '/' : path === to || path.startsWith(to + '/'));
  return html`<nav class="main" aria-label="Main" ref=${bar}>${SCREENS.filter((each) => each.nav).map((each) => html`
    <a href=${link(each.path)} aria-current=${isHere(each.path) ? 'page' : undefined}>${each.nav}</a>`)}</nav>`;
}

const Find = () => html`<button class="find" aria-keyshortcuts="Control+K Meta+K" onClick=${() => { isPaletteOpen.value = true; }}>
  <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true"><circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" stroke-width="1.6"/>
    <path d="M9.2 9.2L13 13" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"/></svg>
  <span>Find, or do…</span><kbd aria-hidden="true">${navigator.platform?.startsWith('Mac') ? '⌘K' : 'Ctrl K'}</kbd></button>`;

const Zone = () => html`<div class="seg" role="group" aria-label="Time zone">${['local', 'UTC'].map((each) => html`
  <button aria-pressed=${zone.value === each} onClick=${() => { zone.value = each; }}>${each}</button>`)}</div>`;

// The state of the stream in one word; a broken one says how old the figures are.
function Live() {
  const state = connection.value;
  const isBroken = state === 'reconnecting';
  document.documentElement.classList.toggle('stale', isBroken);
  return html`<span class=${'connection ' + state} title=${CONNECTION_HELP[state]}><i aria-hidden="true"></i>
    <span role="status">${CONNECTION[state]}</span>${isBroken && heardAt.value ? html`<small>for <${Since} at=${heardAt.value * 1000 + (skew.value ?? 0)}/></small>` : null}</span>`;
}

function Skew() {
  const found = skew.value;
  if (found === null || Math.abs(found) <= SKEW_SAID) return null;
  return html`<span class="skew" title="Countdowns use the server's clock.">this clock is ${duration(Math.abs(found))} ${found > 0 ? 'behind' : 'ahead'}</span>`;
}

export const TopBar = () => html`<header class="top"><a class="brand" href=${link('/')}><${Mark}/>schedo</a>
  <${Links}/><span class="grow"></span><${Skew}/><${Find}/><${Zone}/>
  ${me.value?.access === 'anonymous' && html`<a class="btn" href=${link('/login')}>Log in</a>`}
  <button class="icon" aria-label="Keys and choices" title="Keys and choices (?)" onClick=${() => { isHelpOpen.value = true; }}>?</button><${Live}/></header>`;
