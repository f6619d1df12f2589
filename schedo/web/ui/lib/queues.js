// Queues as the screens need them: how much waits, how fast it goes, and when it will be done.
import { get } from './api.js';
import { instant } from './format.js';

const MINUTES = 15;

export const due = (queue) => queue.waiting.queued ?? 0;
export const later = (queue) => (queue.waiting.scheduled ?? 0) + (queue.waiting.retrying ?? 0) + (queue.waiting.blocked ?? 0);

// The queues that are measured by name; others are so together.
const readMeasured = async () => (await get('/v1/timeseries', { query: { window: '24h', names: 'started', points: 1 } })).queues;

// The rates of these queues, of those that are measured: {name: starts a second or null}.
export async function readRates(names) {
  const measured = names.length ? await readMeasured() : [];
  const pairs = names.filter((name) => measured.includes(name)).map(async (name) => [name, rateOf(await readSeries(name))]);
  return Object.fromEntries(await Promise.all(pairs));
}

// The figures of a queue, or null if it is not measured by name.
export const readSeriesIfAny = async (name) => ((await readMeasured()).includes(name) ? readSeries(name) : null);

// The figures of a queue in the last 24 hours by 5 minutes: {start, step, submitted, started, due, delay}; instants in microseconds.
async function readSeries(name) {
  const found = await get('/v1/timeseries', { query: { window: '24h', queue: name, points: 288 } });
  const { submitted, started, due: waiting, delay_p99_us: delay } = found.figures;
  return { start: instant(found.start), step: found.step * 1e6, submitted, started, due: waiting, delay };
}

// Starts a second in the last quarter of an hour; null if nothing was measured.
export function rateOf({ started, step }) {
  const points = started.slice(-1 - Math.ceil((MINUTES * 6e7) / step), -1).filter((value) => value !== null);
  return points.length ? points.reduce((sum, value) => sum + value, 0) / ((points.length * step) / 1e6) : null;
}

// How long the due jobs take at this rate, in microseconds: 0 if none waits, null if it cannot be told.
export function timeToClear(queue, rate) {
  if (!due(queue)) return 0;
  return rate && !queue.paused ? (due(queue) / rate) * 1e6 : null;
}
