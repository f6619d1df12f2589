// Lateness as a picture: a column is some seconds, a row a bucket, the shade how many; orange is beyond the objective.
import { html, useState } from '../lib/base.js';
import { compact, count, duration, minuteOf, round } from '../lib/format.js';
import { themeVersion, token, zone } from '../lib/prefs.js';
import { putTip, useCanvas } from './canvas.js';
import { fold } from './fold.js';

const LEFT = 58;
const BOTTOM = 22;
const TOP = 4;
const SIDE = 128; // the bars of the sums, where there is room
const NARROW = 480;
const LABELS = [50, 1e3, 1e4, 1e5, 1e6, 1e7]; // bounds that have a label

function layout(width, height, columns, rows) {
  const side = width < NARROW ? 0 : SIDE;
  const plot = width - LEFT - side;
  const tall = height - BOTTOM - TOP;
  return { side, plot, tall, column: plot / columns, row: tall / rows, base: TOP + tall };
}

// Hatch what the server did not run for, so that it does not look like "no starts".
function hatch(pen, x, width, tall) {
  pen.save();
  pen.beginPath();
  pen.rect(x, TOP, width, tall);
  pen.clip();
  pen.strokeStyle = token('--line-strong');
  pen.lineWidth = 1;
  pen.beginPath();
  for (let at = x - tall; at < x + width; at += 8) {
    pen.moveTo(at, TOP + tall);
    pen.lineTo(at + tall, TOP);
  }
  pen.stroke();
  pen.restore();
}

function drawCells(pen, box, { columns }, within) {
  const cool = [1, 2, 3, 4].map((n) => token(`--heat${n}`));
  const warm = [1, 2, 3, 4].map((n) => token(`--beyond${n}`));
  const peak = Math.log1p(Math.max(1, ...columns.flatMap((column) => column ?? [0])));
  const width = Math.max(1, box.column - 0.75);
  columns.forEach((column, at) => column?.forEach((number, row) => {
    if (!number) return;
    const shade = Math.min(3, Math.floor((Math.log1p(number) / peak) * 3.999));
    pen.fillStyle = (row < within ? cool : warm)[shade];
    pen.fillRect(LEFT + at * box.column + 0.5, box.base - (row + 1) * box.row + 0.5, width, box.row - 1);
  }));
}

function drawGaps(pen, box, { columns }) {
  let from = null;
  [...columns, []].forEach((column, at) => {
    if (column === null) from ??= at;
    else if (from !== null) {
      hatch(pen, LEFT + from * box.column, (at - from) * box.column, box.tall);
      from = null;
    }
  });
}

function drawAxes(pen, box, { start, step, columns }, bounds, within, height) {
  pen.font = `11px ${token('--sans')}`;
  pen.fillStyle = token('--muted');
  pen.textBaseline = 'middle';
  pen.textAlign = 'right';
  for (const bound of LABELS) {
    if (Math.abs(bounds.indexOf(bound) + 1 - within) === 1) continue; // too close to the objective's
    const y = box.base - (bounds.indexOf(bound) + 1) * box.row;
    if (bound !== bounds[within - 1]) pen.fillText(round(bound), LEFT - 8, y);
    pen.fillRect(LEFT - 5, Math.round(y), 4, 0.5);
  }
  const span = step * columns.length;
  const parts = box.plot < 300 ? 3 : span > 3.6e9 ? 6 : 5; // of 15 minutes or 24 hours
  for (let part = 0; part <= parts; part += 1) {
    const x = LEFT + box.plot * (1 - part / parts);
    pen.textAlign = part === 0 ? 'right' : part === parts ? 'left' : 'center';
    pen.fillText(part ? minuteOf(start + span * (1 - part / parts)) : 'now', x, height - BOTTOM + 13);
  }
}

function drawSums(pen, box, { sums }, within) {
  if (!box.side) return;
  const x = LEFT + box.plot + 14;
  const most = Math.max(1, ...sums);
  pen.font = `10px ${token('--mono')}`;
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  sums.forEach((number, row) => {
    if (!number) return;
    const length = Math.max(1, ((box.side - 66) * number) / most);
    pen.fillStyle = token(row < within ? '--heat3' : '--beyond3');
    pen.fillRect(x, box.base - (row + 1) * box.row + 1, length, box.row - 2);
    pen.fillStyle = token('--muted');
    pen.fillText(compact(number), x + length + 4, box.base - (row + 0.5) * box.row);
  });
}

// A dashed line, whose label is a chip in the column of the axis: it never covers data.
function drawObjective(pen, box, within, objective) {
  const y = Math.round(box.base - within * box.row) + 0.5;
  pen.strokeStyle = token('--text');
  pen.lineWidth = 1;
  pen.setLineDash([4, 3]);
  pen.beginPath();
  pen.moveTo(LEFT, y);
  pen.lineTo(LEFT + box.plot + box.side, y);
  pen.stroke();
  pen.setLineDash([]);
  pen.font = `600 11px ${token('--sans')}`;
  const label = round(objective);
  const wide = pen.measureText(label).width + 10;
  pen.fillStyle = token('--text');
  pen.beginPath();
  pen.roundRect(LEFT - wide - 2, y - 9, wide, 18, 4);
  pen.fill();
  pen.fillStyle = token('--surface');
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  pen.fillText(label, LEFT - 2 - wide / 2, y + 0.5);
}

// data: {lateness, bounds, start, step}; kinds: of starts; objective in microseconds. The data is continued in place,
// and a component with the same properties is not drawn again: so `version` must change with it.
export function LateMap({ data, kinds, objective, height = 222, columnSeconds = 6, span = '15 minutes' }) {
  const [tip, setTip] = useState(null);
  const rows = data.bounds.length + 1;
  const per = Math.max(1, Math.round((columnSeconds * 1e6) / data.step));
  const folded = { ...fold(data.lateness, kinds, rows, per), start: data.start, step: data.step * per };
  const within = data.bounds.indexOf(objective) + 1;
  const theme = themeVersion.value;
  const { box, canvas, width } = useCanvas(height, (pen, wide) => {
    const place = layout(wide, height, folded.columns.length, rows);
    pen.fillStyle = token('--sunken');
    pen.fillRect(LEFT, TOP, place.plot, place.tall);
    drawGaps(pen, place, folded);
    drawCells(pen, place, folded, within);
    drawAxes(pen, place, folded, data.bounds, within, height);
    drawSums(pen, place, folded, within);
    drawObjective(pen, place, within, objective);
  });
  const point = (event) => {
    const edge = box.current.getBoundingClientRect();
    const place = layout(width, height, folded.columns.length, rows);
    const column = Math.floor((event.clientX - edge.left - LEFT) / place.column);
    const row = Math.floor((place.base - (event.clientY - edge.top)) / place.row);
    const number = folded.columns[column]?.[row];
    setTip(number ? { number, row, at: folded.start + column * folded.step, x: event.clientX - edge.left, y: event.clientY - edge.top } : null);
  };
  const total = folded.sums.reduce((all, number) => all + number, 0);
  const good = folded.sums.slice(0, within).reduce((all, number) => all + number, 0);
  const text = total
    ? `Of ${count(total)} starts in ${span}, ${count(good)} were within ${round(objective)}.`
    : `Nothing was started in the last ${span}.`;
  return html`<div ref=${box} class="picture late-map" role="img" aria-label=${text} data-theme-version=${theme} data-zone=${zone.value} onMouseMove=${point} onMouseLeave=${() => setTip(null)}>
    <canvas ref=${canvas}></canvas>${tip && html`<${Tip} tip=${tip} bounds=${data.bounds} width=${width}/>`}</div>`;
}

function Tip({ tip, bounds, width }) {
  const range = tip.row < bounds.length
    ? `${tip.row ? round(bounds[tip.row - 1]) : '0'} to ${round(bounds[tip.row])}`
    : `over ${duration(bounds.at(-1))}`;
  return html`<div class="tip" ref=${putTip(tip, width)}>${minuteOf(tip.at)} · ${count(tip.number)} late by ${range}</div>`;
}
