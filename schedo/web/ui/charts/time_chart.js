// Lines over time, drawn by uPlot. lines: [{label, color: a token, values, fill, dash, width}]; x: seconds;
// format: of the values at the axis.
import { html, useEffect, useLayoutEffect, useRef } from '../lib/base.js';
import { compact, minuteOf } from '../lib/format.js';
import { themeVersion, token, zone } from '../lib/prefs.js';
import uPlot from '../vendor/uplot.js';

const FEW = 4;
const faint = (color) => color + '1f';
const plain = (value) => (value % 1 ? value : compact(value));

function options(element, height, lines, format) {
  const axis = {
    stroke: token('--muted'), grid: { stroke: token('--line'), width: 1 }, ticks: { show: false }, gap: 6,
    font: `11px ${token('--sans')}`,
  };
  return {
    width: element.clientWidth, height, padding: [8, 12, 0, 0], legend: { show: false },
    cursor: { sync: { key: 'page' }, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.12)] } },
    axes: [
      { ...axis, size: 24, space: 90, grid: { show: false }, values: (_, marks) => marks.map((mark) => minuteOf(mark * 1e6)) },
      { ...axis, size: format ? 60 : 44, space: 38, values: (_, marks) => marks.map(format ?? plain) },
    ],
    series: [{}, ...lines.map((line) => ({
      label: line.label, stroke: token(line.color), width: line.width ?? 1.5, dash: line.dash,
      points: { show: line.values.filter((value) => value !== null).length < FEW }, // a lone point is no line
      fill: line.fill ? faint(token(line.color)) : undefined,
    }))],
  };
}

export function TimeChart({ x, lines, height = 196, format, label }) {
  const box = useRef();
  const plot = useRef(null);
  const theme = themeVersion.value;
  const data = [x, ...lines.map((line) => line.values)];
  useLayoutEffect(() => {
    const element = box.current;
    const made = new uPlot(options(element, height, lines, format), data, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, zone.value, height, lines.length]);
  useEffect(() => { plot.current?.setData(data); });
  return html`<div ref=${box} class="time-chart" role="img" aria-label=${label}></div>`;
}
