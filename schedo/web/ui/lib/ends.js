// What ended over hours and days, as GET /v1/stats tells it.
import { get } from './api.js';
import { instant, iso, now } from './format.js';

const SECOND = 1e6;
const HOUR = 3600 * SECOND;
const DAY = 24 * HOUR;

// How far back, in what points, and in words.
export const WINDOWS = {
  '24h': { span: DAY, per: 'hour', text: '24 hours' },
  '7d': { span: 7 * DAY, per: 'hour', text: '7 days' },
  '90d': { span: 90 * DAY, per: 'day', text: '90 days' },
};
const STEPS = { hour: HOUR, day: DAY };
const LISTED = 100; // names

const since = (window) => iso(now() - WINDOWS[window].span);

// The counts of all jobs that ended in the last 24 hours: {completed, failed, cancelled, expired, …}.
export const readEnded = async () => (await get('/v1/stats', { query: { since: since('24h'), limit: 1 } })).total;

// The names with the most ended jobs: {items, total, has_more}.
export const readNames = ({ by, window, text }) => get('/v1/stats', { query: { by, since: since(window), name: text, limit: LISTED } });

// The figures by points of equal length, of one name or of all: {total, x: seconds, step: seconds, points}; a point without ends is null.
export async function readPoints({ by, window, name }) {
  const { per } = WINDOWS[window];
  const found = await get('/v1/stats', { query: { by, since: since(window), per, exact_name: name, limit: 1 } });
  const [start, end, step] = [instant(found.since), now(), STEPS[per]];
  const known = new Map(found.points.map((point) => [instant(point.at), point]));
  const instants = Array.from({ length: Math.ceil((end - start) / step) }, (_, at) => start + at * step);
  return { total: found.total, step: step / SECOND, x: instants.map((at) => at / SECOND), points: instants.map((at) => known.get(at) ?? null) };
}
