// Lateness and throughput of the last 15 minutes.
import { html } from '../../lib/base.js';
import { count, duration, minuteOf, percent, round } from '../../lib/format.js';
import { summary } from '../../lib/live.js';
import { link, setQuery } from '../../lib/router.js';
import { drawn, failed, loadSeries, series, sum } from '../../lib/series.js';
import { fold } from '../../charts/fold.js';
import { LateMap } from '../../charts/late_map.js';
import { TimeChart } from '../../charts/time_chart.js';
import { Card, Failure, Loading } from '../../parts/basics.js';
import { TableToggle } from '../../parts/table_toggle.js';

const KINDS = { all: ['timer', 'submit'], timer: ['timer'], submit: ['submit'] };
const FEW = 4; // points without figures that need no word
const NAMES = { all: 'all', timer: 'timers', submit: 'immediate' };

const Choice = ({ chosen }) => html`<div class="seg small" role="group" aria-label="Which starts">${Object.keys(KINDS).map((kind) => html`
  <button aria-pressed=${chosen === kind} onClick=${() => setQuery({ starts: kind === 'all' ? '' : kind })}>${NAMES[kind]}</button>`)}</div>`;

export function Lateness({ query }) {
  drawn.value;
  const data = series.peek();
  const chosen = KINDS[query.starts] ? query.starts : 'all';
  const objective = summary.value.objective.lateness_us;
  return html`<${Card} title="How late jobs start" span=${7} about=${`a column is 6 s; orange is beyond ${round(objective)}`}
    actions=${html`<${Choice} chosen=${chosen}/>`} more=${{ href: link('/lateness'), text: 'by queue' }}>${body(data, () => html`<${LateMap} data=${data} version=${drawn.value} kinds=${KINDS[chosen]} objective=${objective}/>
      <div class="foot"><span>${missing(data)}</span>
      <${TableToggle} head=${['Late by', 'Starts', 'Share']} rows=${() => rowsOf(data, KINDS[chosen])} caption="Starts of the last 15 minutes by lateness"/></div>`)}</${Card}>`;
}

function missing({ figures, step }) {
  const none = figures.started.filter((value) => value === null).length;
  return none > FEW && `Hatched: for ${duration(none * step)} there are no figures.`;
}

function rowsOf(data, kinds) {
  const { sums } = fold(data.lateness, kinds, data.bounds.length + 1, 2);
  const total = sum(sums);
  return sums.map((number, row) => [
    row < data.bounds.length ? `up to ${round(data.bounds[row])}` : `over ${round(data.bounds.at(-1))}`,
    count(number), total ? percent(number / total) : '–',
  ]);
}

const body = (data, draw) => (data ? draw() : failed.value ? html`<${Failure} error=${failed.value} what="The figures" again=${loadSeries}/>` : html`<${Loading}/>`);

// Values a second, each the mean of two points; the point that has not ended yet is left out.
function perSecond(name) {
  const { figures, step } = series.peek();
  const values = figures[name].map((value) => (value === null ? null : value / (step / 1e6)));
  values[values.length - 1] = null;
  return values.map((value, at) => (value === null || !at || values[at - 1] === null ? value : (value + values[at - 1]) / 2));
}

const LINES = [
  { name: 'started', label: 'started', color: '--st-running', fill: true },
  { name: 'submitted', label: 'submitted', color: '--faint', dash: [3, 3], width: 1.25 },
  { name: 'failed', label: 'failed', color: '--st-failed' },
];

function minutes() {
  const { figures, start, step } = series.peek();
  const points = Math.round(6e7 / step);
  const rows = [];
  for (let at = 0; at < figures.started.length; at += points) {
    rows.push([minuteOf(start + at * step), ...LINES.map((line) => count(sum(figures[line.name].slice(at, at + points))))]);
  }
  return rows.reverse();
}

export function Throughput() {
  drawn.value;
  const data = series.peek();
  const draw = () => {
    const x = data.figures.started.map((_, at) => (data.start + at * data.step) / 1e6);
    const lines = LINES.map((line) => ({ ...line, values: perSecond(line.name) }));
    const label = LINES.map((line) => `${line.label} ${count(sum(data.figures[line.name]))}`).join(', ') + ' in 15 minutes';
    return html`<${TimeChart} x=${x} lines=${lines} label=${label} height=${212}/>
      <div class="foot"><span class="legend">${LINES.map((line) => html`<span><i class=${'k-' + line.name}></i>${line.label}</span>`)}</span>
      <${TableToggle} head=${['Minute', ...LINES.map((line) => line.label)]} rows=${minutes} caption="Jobs by minute"/></div>`;
  };
  return html`<${Card} title="Throughput" span=${5} about="jobs a second, mean of 6 s" more=${{ href: link('/jobs'), text: 'jobs' }}>${body(data, draw)}</${Card}>`;
}
