// Counts of equal intervals as small bars, the newest at the right; heights are linear from 0.
import { html } from '../lib/base.js';

const WIDTH = 3;
const GAP = 1;
const HEIGHT = 20;

// label: the figure in words.
export function CountBars({ counts, label, color = 'var(--accent)' }) {
  const most = Math.max(1, ...counts);
  const width = counts.length * (WIDTH + GAP);
  return html`<svg class="counts" width=${width} height=${HEIGHT} role="img" aria-label=${label}><title>${label}</title>
    <line x2=${width} y1=${HEIGHT - 0.5} y2=${HEIGHT - 0.5} stroke="var(--line-strong)"/>
    ${counts.map((value, at) => value > 0 && html`<rect x=${at * (WIDTH + GAP)} y=${HEIGHT - Math.max(2, (value / most) * HEIGHT)}
      width=${WIDTH} height=${Math.max(2, (value / most) * HEIGHT)} fill=${color}/>`)}</svg>`;
}
