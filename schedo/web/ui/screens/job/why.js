// Why a job waits: each condition of its start, and what each worker says.
import { html } from '../../lib/base.js';
import { plural } from '../../lib/format.js';
import { legible } from '../../lib/legible.js';
import { Glyph } from '../../parts/state.js';
import { Reasons, Sentence } from '../../parts/reasons.js';

const SHOWN = 6;

const glyphOf = (check) => {
  if (check.ok) return 'completed';
  if (check.permanent) return 'failed';
  return check.what === 'due' ? 'scheduled' : 'queued';
};

const Check = ({ check }) => html`<li class=${check.ok ? 'ok' : 'blocked'}><${Glyph} state=${glyphOf(check)}/>
  <span><span class="vh">${check.ok ? 'Met: ' : 'Not met: '}</span><${Sentence} text=${check.text}/>${!check.ok && check.permanent
    ? html` <b class="tag">time alone does not help</b>` : null}</span></li>`;

export function Why({ why }) {
  const { checks, workers } = why;
  const isStuck = checks.some((check) => !check.ok && check.permanent);
  const first = checks.find((check) => !check.ok) ?? checks.at(-1);
  // Before it is due, what workers say about it now tells little.
  const shown = isStuck || why.state === 'queued' ? workers.slice(0, SHOWN) : [];
  const rest = workers.slice(shown.length);
  return html`<section class=${`why c12 ${isStuck ? 'stuck' : ''}`} aria-labelledby="why-title">
    <h2 id="why-title">${isStuck ? 'It cannot start' : 'Why it waits'}</h2><p class="vh" role="status">${legible(first?.text ?? '')}</p>
    <ul class="checks">${checks.map((check) => html`<${Check} check=${check} key=${check.what}/>`)}</ul>
    ${shown.length > 0 && html`<h3>What the workers say</h3><${Reasons} reasons=${shown}/>`}
    ${rest.length > 0 && html`<details><summary>${shown.length ? plural(rest.length, 'more worker') : `What ${plural(rest.length, 'worker')} would say`}${why.has_more_workers ? ', and others' : ''}</summary>
      <${Reasons} reasons=${rest}/></details>`}</section>`;
}
