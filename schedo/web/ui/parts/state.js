// The states of jobs, as signs and words.
import { html, styled } from '../lib/base.js';
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
