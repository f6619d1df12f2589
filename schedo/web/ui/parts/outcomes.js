// The last runs of a schedule as squares, the newest at the right: glyph and colour, never colour alone.
import { html, styled } from '../lib/base.js';
import { duration, instant, micros, when } from '../lib/format.js';
import { link } from '../lib/router.js';
import { Glyph } from './state.js';

const counted = (runs) => {
  const counts = new Map();
  for (const { state } of runs) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, number]) => `${number} ${state}`).join(', ');
};

const titleOf = (run) => [
  run.state, run.scheduled_for && `due ${when(instant(run.scheduled_for))}`, run.ended_at && `ended ${when(instant(run.ended_at))}`, run.duration && `ran ${duration(micros(run.duration))}`,
].filter(Boolean).join(', ');

// runs: newest first, as the API lists them.
export function Outcomes({ runs, isLinked = false }) {
  if (!runs.length) return html`<span class="muted">no run yet</span>`;
  const shown = [...runs].reverse();
  const squares = shown.map((run) => {
    const square = html`<span class=${`square ${run.state}`} title=${titleOf(run)} ref=${styled({ color: `var(--st-${run.state})` })}><${Glyph} state=${run.state}/></span>`;
    return isLinked ? html`<a href=${link(`/jobs/${run.job}`)} aria-label=${`Job ${run.job}, ${titleOf(run)}`}>${square}</a>` : square;
  });
  const label = `Last ${runs.length} runs: ${counted(runs)}`;
  return isLinked
    ? html`<span class="outcomes" role="group" aria-label=${label}>${squares}</span>`
    : html`<span class="outcomes" role="img" aria-label=${label}>${squares}</span>`;
}
