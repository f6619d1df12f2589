// The verdict in one sentence, and six figures with their last minutes.
import { computed, html } from '../../lib/base.js';
import { bytes, compact, duration, percent, round } from '../../lib/format.js';
import { summary, tick } from '../../lib/live.js';
import { countBuckets, drawn, gauge, quantile, series, sum } from '../../lib/series.js';
import { link } from '../../lib/router.js';
import { NEXT } from '../../lib/words.js';
import { Spark } from '../../charts/spark.js';

const WORDS = { ok: 'Well', warning: 'Warning', critical: 'Critical' };
const TAIL = 60; // points of a sparkline: three minutes

// The first sentence says it; the rest is its evidence.
function split(text) {
  const end = text.search(/\. (?=[A-Z0-9])/);
  return end < 0 ? [text, ''] : [text.slice(0, end + 1), text.slice(end + 1)];
}

const budgetLeft = computed(() => {
  const { timer, submit } = summary.value.lateness;
  return (timer.day.starts ? timer : submit).day;
});

export function Verdict() {
  const verdict = tick.value?.verdict ?? summary.value.verdict;
  const { store_bytes: store, memory_bytes: memory } = summary.value;
  const [first, rest] = split(verdict.text);
  const day = budgetLeft.value;
  return html`<div class="verdict"><span class=${'dot ' + verdict.level}><span class="vh">${WORDS[verdict.level]}: </span></span>
    <div class="says"><p><b>${first}</b>${rest}</p>${verdict.others.map((text) => html`<p class="other">${text}</p>`)}</div>
    <span class="small muted">${day.starts > 0 && html`<span title=${`${percent(day.share)} of the starts of the last 24 hours kept the objective of ${round(summary.value.objective.lateness_us)}; 99.9 % must.`}>error budget ${Math.max(0, Math.round(day.budget_left * 100))} % left today</span> · `}${store > 0 && `store ${bytes(store)} · `}memory ${bytes(memory)}</span></div>`;
}

// Timers say whether schedo is on time. Without any, the jobs that were due at once are shown.
const kind = computed(() => {
  drawn.value;
  const found = series.peek();
  return found && !sum(countBuckets(found, ['timer'])) && sum(countBuckets(found, ['submit'])) ? 'submit' : 'timer';
});
const KINDS = { timer: 'timers', submit: 'immediate jobs' };
const late = (share) => computed(() => {
  drawn.value;
  return series.peek() ? quantile(countBuckets(series.peek(), [kind.value]), series.peek().bounds, share) : null;
});
const median = late(0.5);
const p99 = late(0.99);

function lateTail(share) {
  const { lateness, bounds } = series.peek();
  return lateness[kind.value].slice(-TAIL).map((counts) => counts && quantile(counts, bounds, share));
}
const tail = (name) => series.peek().figures[name].slice(-TAIL);
const all = (name) => sum(series.peek().figures[name]);

function startRate() {
  const { figures, step } = series.peek();
  const points = figures.started.slice(-5, -1).filter((value) => value !== null);
  return points.length ? (sum(points) / points.length) / (step / 1e6) : null;
}

const rate = (value) => (value === null ? '–' : value < 10 ? value.toFixed(1).replace('.0', '') : compact(value));
const due = gauge('due');
const later = gauge('later');
const running = gauge('running');
const slots = gauge('slots');
const lateText = (value) => (value === null ? '–' : duration(value));

// [name, value, unit, sparkline, colour]; each figure is a component, so that only what changes is drawn.
const FIGURES = [
  [() => `Late, median of ${KINDS[kind.value]}`, () => lateText(median.value), () => '', () => lateTail(0.5), 'var(--accent)'],
  [() => `Late, p99 of ${KINDS[kind.value]}`, () => lateText(p99.value), () => '', () => lateTail(0.99), 'var(--accent)'],
  [() => 'Started', () => rate(startRate()), () => '/s', () => tail('started').slice(0, -1), 'var(--st-completed)'],
  [() => 'Failed', () => compact(all('failed')), () => 'in 15 min', () => series.peek().figures.failed.slice(-100), 'var(--st-failed)'],
  [() => 'Due, waiting', () => compact(due.value), () => (later.value ? html`<a href=${link('/jobs', NEXT)} title="What comes next">+ ${compact(later.value)} later</a>` : ''), () => tail('due'), 'var(--st-queued)'],
  [() => 'Busy slots', () => compact(running.value), () => `of ${compact(slots.value)}`, () => tail('running'), 'var(--st-running)'],
];

function Figure({ figure: [name, value, unit, values, color] }) {
  drawn.value;
  const has = series.peek() !== null;
  return html`<div><dt>${name()}</dt><dd><span>${has ? value() : '–'}</span> <small>${has ? unit() : ''}</small>
    ${has && html`<${Spark} values=${values()} color=${color}/>`}</dd></div>`;
}

export const Figures = () => html`<dl class="figures">${FIGURES.map((figure) => html`<${Figure} figure=${figure}/>`)}</dl>`;
