// When a run is due: the instant of its rule, or with a jitter the range in which it is.
import { html } from '../lib/base.js';
import { clock, day, instant } from '../lib/format.js';
import { Time } from './basics.js';

// at: the instant of the rule; next: the one that follows, before which each run is due; jitter: in microseconds.
export function Fires({ at, next, jitter }) {
  if (!jitter) return html`<${Time} at=${at} full/>`;
  const first = instant(at);
  const last = Math.min(first + jitter, next ? instant(next) : Infinity);
  return html`<${Time} at=${at} full/><span class="spread"> to <span class="mono">${day(last) === day(first) ? '' : `${day(last)} `}${clock(last)}</span></span>`;
}
