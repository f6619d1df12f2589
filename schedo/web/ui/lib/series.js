// The figures of the last 15 minutes, each point 3 seconds: read once, then continued by the ticks.
import { get } from './api.js';
import { computed, signal } from './base.js';
import { instant } from './format.js';
import { on, tick } from './live.js';

const SECOND = 1e6;
const DRAW_TICKS = 2; // charts are drawn each second tick
const RECENT = 100; // points of five minutes

// {step, start, figures: {name: []}, lateness: {timer: [], submit: []}, bounds}; microseconds. null: not read yet.
export const series = signal(null);
export const drawn = signal(0); // grows when the charts shall be drawn again
export const failed = signal(null); // the error of the last read

let isWanted = false;
let ticks = 0;

// A response of GET /v1/timeseries with its times in microseconds.
export const read = (found) => ({
  ...found, step: found.step * SECOND, start: instant(found.start), readAt: instant(found.now),
  bounds: found.bounds?.map((bound) => Math.round(bound * SECOND)),
});

export async function loadSeries() {
  isWanted = true;
  try {
    series.value = read(await get('/v1/timeseries'));
    failed.value = null;
    drawn.value += 1;
  } catch (error) {
    failed.value = error;
  }
}

const SUMMED = new Set(['submitted', 'started', 'completed', 'failed', 'cancelled', 'expired', 'attempts_failed', 'commits']);

// Begin new points until the instant has one; what the stream has not told stays a gap.
function reach(found, at) {
  const points = found.figures.started.length;
  let last = Math.floor((at - found.start) / found.step);
  const lists = [...Object.values(found.figures), ...Object.values(found.lateness)];
  while (last >= points) {
    for (const list of lists) {
      list.push(null);
      list.shift();
    }
    found.start += found.step;
    last -= 1;
  }
  return last;
}

function add(found, data) {
  const at = instant(data.now);
  if (at <= found.readAt || !data.figures) return;
  const place = reach(found, at);
  if (place < 0) return; // the server's clock was set back
  for (const [name, value] of Object.entries(data.figures)) {
    const list = found.figures[name];
    if (!list) continue;
    list[place] = SUMMED.has(name) ? (list[place] ?? 0) + value : Math.max(list[place] ?? 0, value ?? 0);
  }
  for (const [kind, counts] of Object.entries(data.lateness ?? {})) {
    const before = found.lateness[kind][place];
    found.lateness[kind][place] = before ? before.map((count, row) => count + counts[row]) : [...counts];
  }
}

on('tick', (data) => {
  if (!series.peek()) return;
  add(series.peek(), data);
  ticks += 1;
  if (ticks % DRAW_TICKS === 0 && !document.hidden) drawn.value += 1;
});
on('missed', () => { if (isWanted) loadSeries(); });

// The counts of the buckets in the last points, of these kinds of starts together.
export function countBuckets(found, kinds, points = RECENT) {
  const sums = new Array(found.bounds.length + 1).fill(0);
  for (const kind of kinds) {
    for (const counts of found.lateness[kind].slice(-points)) counts?.forEach((count, row) => { sums[row] += count; });
  }
  return sums;
}

// A quantile in microseconds, values being evenly spread within a bucket; null without starts.
export function quantile(counts, bounds, share) {
  const rank = share * counts.reduce((sum, count) => sum + count, 0);
  if (!rank) return null;
  let below = 0;
  for (const [row, count] of counts.entries()) {
    const lower = row ? bounds[row - 1] : 0;
    if (count && below + count >= rank) return row < bounds.length ? lower + (bounds[row] - lower) * ((rank - below) / count) : lower;
    below += count;
  }
  return bounds.at(-1);
}

export const sum = (list) => list.reduce((total, value) => total + (value ?? 0), 0);

// The last known value of a gauge: of the last tick, or of the series.
export const gauge = (name) => computed(() => tick.value?.figures?.[name] ?? series.value?.figures[name].findLast((value) => value !== null) ?? null);
