// Lines over time. Values begin at 0; a gap in the values is a gap in the line.
import { html, useState } from '../lib/base.js';
import { compact, day, minuteOf } from '../lib/format.js';
import { themeVersion, token, zone } from '../lib/prefs.js';
import { putTip, useCanvas } from './canvas.js';

const TOP = 8;
const RIGHT = 12;
const BOTTOM = 24;
const LEFT = 44; // with a format 60
const ROOM = 38; // pixels between two marks of the values, at least
const WIDE = 90; // and between two of the time
const DAY = 1440;
const MINUTES = [1, 2, 5, 15, 30, 60, 180, 360, 720, DAY, 2 * DAY, 3 * DAY, 7 * DAY, 14 * DAY];

const HOUR_US = 3600e6;

const plain = (value) => (value % 1 ? Number(value.toFixed(2)) : compact(value));

// The distance of marks: 1, 2 or 5 times a power of ten, so that at most `parts` of them reach `most`.
export function chooseStep(most, parts) {
  const power = 10 ** Math.floor(Math.log10(most / parts));
  return power * ([1, 2, 5].find((times) => times * power >= most / parts) ?? 10);
}

// Where a point of the data is: x by seconds, y by value.
function makeScale(width, height, x, lines, format) {
  const left = format ? 60 : LEFT;
  const most = Math.max(1, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))) * 1.08;
  const [first, span] = [x[0], Math.max(1, x.at(-1) - x[0])];
  const [wide, tall] = [width - left - RIGHT, height - TOP - BOTTOM];
  return { left, wide, tall, most, first, span, at: (second) => left + ((second - first) / span) * wide, to: (value) => TOP + tall * (1 - value / most) };
}

function drawAxes(pen, scale, format) {
  pen.font = `11px ${token('--sans')}`;
  pen.textBaseline = 'middle';
  const step = chooseStep(scale.most, Math.max(1, Math.floor(scale.tall / ROOM)));
  for (let value = 0; value <= scale.most; value += step) {
    const y = Math.round(scale.to(value)) + 0.5;
    pen.fillStyle = token('--line');
    pen.fillRect(scale.left, y - 0.5, scale.wide, 1);
    pen.fillStyle = token('--muted');
    pen.textAlign = 'right';
    pen.fillText(format ? format(value) : plain(value), scale.left - 6, y);
  }
  const minutes = MINUTES.find((each) => (scale.span / (each * 60)) * WIDE <= scale.wide) ?? MINUTES.at(-1);
  const dayOf = (at) => day(at + 6 * HOUR_US).slice(5); // the clock may have been changed meanwhile
  const say = (at) => (minutes >= DAY || (scale.span > 2 * DAY * 60 && minuteOf(at) === '00:00') ? dayOf(at) : minuteOf(at));
  const offset = zone.value === 'UTC' ? 0 : -new Date(scale.first * 1000).getTimezoneOffset() * 60;
  const every = minutes * 60;
  pen.textAlign = 'center';
  for (let second = Math.ceil((scale.first + offset) / every) * every - offset; second <= scale.first + scale.span; second += every) {
    if (scale.at(second) > scale.left + 12) pen.fillText(say(second * 1e6), scale.at(second), TOP + scale.tall + 15);
  }
}

// Runs of points without a gap: [[place, value], …].
function splitRuns(values) {
  const runs = [[]];
  values.forEach((value, place) => {
    if (value !== null) runs.at(-1).push([place, value]);
    else if (runs.at(-1).length) runs.push([]);
  });
  return runs.filter((run) => run.length);
}

function drawLine(pen, scale, x, line) {
  const color = token(line.color);
  for (const run of splitRuns(line.values)) {
    const path = new Path2D();
    run.forEach(([place, value]) => path.lineTo(scale.at(x[place]), scale.to(value)));
    if (line.fill) {
      const area = new Path2D(path);
      area.lineTo(scale.at(x[run.at(-1)[0]]), scale.to(0));
      area.lineTo(scale.at(x[run[0][0]]), scale.to(0));
      pen.fillStyle = `${color}1f`;
      pen.fill(area);
    }
    pen.strokeStyle = pen.fillStyle = color;
    pen.lineWidth = line.width ?? 1.5;
    pen.lineJoin = 'round';
    pen.setLineDash(line.dash ?? []);
    pen.stroke(path);
    if (run.length === 1) pen.fillRect(scale.at(x[run[0][0]]) - 1.5, scale.to(run[0][1]) - 1.5, 3, 3); // a lone point is no line
  }
  pen.setLineDash([]);
}

// lines: [{label, color: a token of six digits, values, fill, dash, width}]; x: seconds; format: of the values; tell: the words for an instant; label: the figure in words.
export function TimeChart({ x, lines, height = 196, format, tell = minuteOf, label }) {
  const [tip, setTip] = useState(null); // {place, x, y}
  const theme = themeVersion.value;
  const { box, canvas, width } = useCanvas(height, (pen, wide) => {
    const scale = makeScale(wide, height, x, lines, format);
    drawAxes(pen, scale, format);
    for (const line of lines) if (line.values.some(Boolean)) drawLine(pen, scale, x, line);
    pen.fillStyle = token('--muted');
    if (tip) pen.fillRect(Math.round(scale.at(x[tip.place])), TOP, 1, scale.tall);
  });
  const point = (event) => {
    const edge = box.current.getBoundingClientRect();
    const scale = makeScale(width, height, x, lines, format);
    const place = Math.round(((event.clientX - edge.left - scale.left) / scale.wide) * (x.length - 1));
    const isInside = place >= 0 && place < x.length && lines.some((line) => line.values[place] !== null);
    setTip(isInside ? { place, x: event.clientX - edge.left, y: event.clientY - edge.top } : null);
  };
  return html`<div ref=${box} class="picture" role="img" aria-label=${label} data-theme-version=${theme} data-zone=${zone.value} onMouseMove=${point} onMouseLeave=${() => setTip(null)}>
    <canvas ref=${canvas}></canvas>${tip && html`<div class="tip" ref=${putTip(tip, width)}>${tell(x[tip.place] * 1e6)} · ${lines.map((line) => say(line, tip.place, format)).join(', ')}</div>`}</div>`;
}

const say = ({ label, values }, place, format) => `${label} ${values[place] === null ? '–' : format ? format(values[place]) : plain(values[place])}`;
