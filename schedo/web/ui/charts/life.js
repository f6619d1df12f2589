// A job's life on one line. Widths grow with the logarithm of the time, so microseconds and days fit beside each other.
import { html, styled, useEffect, useRef, useState } from '../lib/base.js';
import { clock, day, duration } from '../lib/format.js';
import { zone } from '../lib/prefs.js';

const NARROW = 560; // below it the life is a list
const HEIGHT = 116;
const TOP = 46;
const BAR = 20;
const FILL = { wait: 'url(#hatch)', store: 'var(--st-scheduled)', late: 'var(--ph-late)', good: 'var(--st-completed)', run: 'var(--st-running)', bad: 'var(--st-failed)' };
const DOT = { ...FILL, wait: 'var(--line-strong)' };

// The width of an element, as it changes.
export function useWidth() {
  const [width, setWidth] = useState(0);
  const box = useRef();
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}

const weigh = ({ from, to }) => Math.log10(1 + Math.max(0, to - from) / 50) + 0.9;
const describe = ({ steps }) => steps.map((step) => `${step.label}: ${duration(step.to - step.from)}`).join('; ');

export function LifeLine({ life }) {
  const [box, width] = useWidth();
  zone.value; // the instants are drawn again in another zone
  return html`<div ref=${box} class="life">${width === 0 ? null : width < NARROW
    ? html`<${List} life=${life}/>` : html`<${Line} life=${life} width=${width}/>`}</div>`;
}

const List = ({ life: { steps, marks } }) => html`<ol class="lifelist">${marks.map((mark, index) => html`<li>
  <div>${mark.name} <span class="mono muted">${instantOf(mark.at, marks[0].at)}</span></div>
  ${steps[index] && html`<div class="step"><i aria-hidden="true" ref=${styled({ background: DOT[steps[index].kind] })}></i>
    <b>${duration(steps[index].to - steps[index].from)}</b><span class="muted">${steps[index].label}</span></div>`}</li>`)}</ol>`;

// The clock to the microsecond; with the day if it is not that of the first mark.
const instantOf = (at, first) => (day(at) === day(first) ? clock(at, 6) : `${day(at)} ${clock(at, 6)}`);

function Line({ life, width }) {
  const { steps, marks } = life;
  const total = steps.reduce((sum, step) => sum + weigh(step), 0);
  let x = 2;
  const bars = steps.map((step) => {
    const bar = { ...step, x, width: (weigh(step) / total) * (width - 4) };
    x += bar.width;
    return bar;
  });
  return html`<svg width=${width} height=${HEIGHT} role="img" aria-label=${describe(life)}>
    <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="6" height="6" fill="var(--sunken)"/><line y2="6" stroke="var(--line-strong)" stroke-width="2"/></pattern></defs>
    ${bars.map((bar) => html`<${Bar} bar=${bar}/>`)}
    ${marks.map((mark, index) => html`<${Mark} mark=${mark} index=${index} bars=${bars} width=${width} first=${marks[0].at}/>`)}</svg>`;
}

const Bar = ({ bar }) => html`<g><rect x=${bar.x} y=${TOP} width=${Math.max(2, bar.width - 2)} height=${BAR} rx="3" fill=${FILL[bar.kind]}>
    <title>${bar.label}: ${duration(bar.to - bar.from)}</title></rect>
  ${bar.width > 52 && html`<text class="long" x=${bar.x + bar.width / 2} y=${TOP - 26} text-anchor="middle">${duration(bar.to - bar.from)}</text>`}
  ${bar.label.length * 6.4 < bar.width && html`<text x=${bar.x + bar.width / 2} y=${TOP - 10} text-anchor="middle">${bar.label}</text>`}</g>`;

function Mark({ mark, index, bars, width, first }) {
  const isLast = index === bars.length;
  const x = isLast ? width - 3 : bars[index].x;
  const anchor = index === 0 ? 'start' : isLast ? 'end' : 'middle';
  const text = instantOf(mark.at, first);
  // At the ends a label has its bar alone; between them it has half of each neighbour.
  const room = index === 0 ? bars[0]?.width ?? width : isLast ? bars[index - 1].width : Math.min(bars[index - 1].width, bars[index].width);
  return html`<g><line x1=${x} x2=${x} y1=${TOP + BAR} y2=${TOP + BAR + 8} stroke="var(--line-strong)"/>
    ${room > text.length * 6.6 && html`<text x=${x} y=${TOP + BAR + 24} text-anchor=${anchor}>${mark.name}</text>
      <text class="at" x=${x} y=${TOP + BAR + 40} text-anchor=${anchor}>${text}</text>`}</g>`;
}
