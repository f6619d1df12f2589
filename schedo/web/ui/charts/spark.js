// A line of the last minutes beside a figure; gaps are gaps.
import { html } from '../lib/base.js';

export function Spark({ values, color = 'var(--accent)', width = 72, height = 22 }) {
  const most = Math.max(...values.map((value) => value ?? 0), 1e-9);
  const step = width / Math.max(1, values.length - 1);
  const lines = [];
  let line = [];
  values.forEach((value, at) => {
    if (value === null || value === undefined) {
      if (line.length) lines.push(line);
      line = [];
    } else line.push(`${(at * step).toFixed(1)},${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`);
  });
  if (line.length) lines.push(line);
  return html`<svg class="spark" width=${width} height=${height} aria-hidden="true">${lines.map((points) => html`
    <polyline points=${points.join(' ')} fill="none" stroke=${color} stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round"/>`)}</svg>`;
}
