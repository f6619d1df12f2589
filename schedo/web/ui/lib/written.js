// Data of users whose numbers stay as they were written: 1.0 does not become 1. The page only shows such data and sends it back.
import { get } from './api.js';
import { parseExact } from './exact.js';

const keep = (_, value, { source }) => (typeof value !== 'number' || String(value) === source ? value : JSON.rawJSON(source));

// A number that JavaScript writes differently becomes JSON.rawJSON. A browser without that writes it in its own way.
export const parseWritten = (text) => JSON.parse(text, JSON.rawJSON && keep);

const DATA = ['payload', 'result', 'meta', 'on_failure', 'expect', 'requires', 'prefer']; // of jobs and schedules: nothing is computed with it

// Read a job or a schedule.
export async function getWritten(path) {
  const text = await get(path, { as: 'text' });
  const written = parseWritten(text);
  return Object.assign(parseExact(text), Object.fromEntries(DATA.filter((name) => name in written).map((name) => [name, written[name]])));
}
