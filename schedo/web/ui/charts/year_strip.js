// The fires of a year as a strip: a column is a day, taller with more fires; a mark where a change of the clock moves or repeats one.
import { html } from '../lib/base.js';
import { day, instant, now } from '../lib/format.js';

const DAYS = 366;
const DAY_US = 86_400 * 1e6;
const HEIGHT = 44;
const BASE = 30;
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

const dayOf = (at) => Math.floor((at - now()) / DAY_US);

// fires: instants as text, as far as they are listed; changes: [{at, description}].
export function YearStrip({ fires, changes }) {
  const counts = new Array(DAYS).fill(0);
  for (const fire of fires) if (dayOf(instant(fire)) in counts) counts[dayOf(instant(fire))] += 1;
  const most = Math.max(1, ...counts);
  const months = Array.from({ length: DAYS }, (_, at) => at).filter((at) => new Date((now() + at * DAY_US) / 1000).getUTCDate() === 1);
  const marked = changes.filter((change) => dayOf(instant(change.at)) in counts);
  const label = `The coming year: ${fires.length} fires are listed, ${marked.length} of them on changes of the clock${marked.length ? ': ' + marked.map((change) => day(instant(change.at))).join(', ') : ''}.`;
  return html`<svg class="year" viewBox=${`0 0 ${DAYS * 2} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${label}>
    ${months.map((at) => html`<path d=${`M${at * 2} 4v${BASE - 4}`} stroke="var(--line)"/>`)}
    ${counts.map((number, at) => (number ? html`<rect x=${at * 2} y=${BASE - 4 - (14 * number) / most} width="1.4" height=${4 + (14 * number) / most} fill="var(--ph-late)"/>` : null))}
    ${marked.map((change) => html`<path d=${`M${dayOf(instant(change.at)) * 2} 2v${BASE - 2}`} stroke="var(--amber)" stroke-width="3"><title>${change.description}</title></path>`)}</svg>
    <p class="months" aria-hidden="true">${months.map((at) => html`<span>${MONTHS[new Date((now() + at * DAY_US) / 1000).getUTCMonth()]}</span>`)}</p>`;
}
