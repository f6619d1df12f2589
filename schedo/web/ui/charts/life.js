// A job's life on one line. Widths grow with the logarithm of the time, so microseconds and days fit beside each other.
import { html, styled, useEffect, useRef, useState } from '../lib/base.js';
import { clock, day, duration } from '../lib/format.js';
import { zone } from '../lib/prefs.js';

const NARROW = 560; // below it the life is a list
const HEIGHT = 116;
const TOP = 46;
const BAR = 20;
const WIDE = 7; // of a character of a label, with some room beside it
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
    ${place(marks, bars, width).map((mark) => html`<${Mark} mark=${mark}/>`)}</svg>`;
}

// Where each mark stands and its label, if there is room: both ends have theirs, then those between from left to right.
function place(marks, bars, width) {
  const last = marks.length - 1;
  const taken = [];
  const placed = marks.map((mark, index) => {
    const text = instantOf(mark.at, marks[0].at);
    const wide = Math.max(mark.name.length, text.length) * WIDE;
    const [anchor, before] = index === 0 ? ['start', 0] : index === last ? ['end', wide] : ['middle', wide / 2];
    const x = index === last ? width - 3 : bars[index].x;
    return { ...mark, x, text, anchor, from: x - before, to: x - before + wide };
  });
  for (const mark of new Set([placed[0], placed[last], ...placed])) {
    mark.isShown = taken.every(({ from, to }) => mark.from > to || mark.to < from);
    if (mark.isShown) taken.push(mark);
  }
  return placed;
}

const Bar = ({ bar }) => html`<g><rect x=${bar.x} y=${TOP} width=${Math.max(2, bar.width - 2)} height=${BAR} rx="3" fill=${FILL[bar.kind]}>
    <title>${bar.label}: ${duration(bar.to - bar.from)}</title></rect>
  ${bar.width > 52 && html`<text class="long" x=${bar.x + bar.width / 2} y=${TOP - 26} text-anchor="middle">${duration(bar.to - bar.from)}</text>`}
  ${bar.label.length * 6.4 < bar.width && html`<text x=${bar.x + bar.width / 2} y=${TOP - 10} text-anchor="middle">${bar.label}</text>`}</g>`;

const Mark = ({ mark: { name, x, text, anchor, isShown } }) => html`<g><line x1=${x} x2=${x} y1=${TOP + BAR} y2=${TOP + BAR + 8} stroke="var(--line-strong)"/>
  ${isShown && html`<text x=${x} y=${TOP + BAR + 24} text-anchor=${anchor}>${name}</text>
    <text class="at" x=${x} y=${TOP + BAR + 40} text-anchor=${anchor}>${text}</text>`}</g>`;
