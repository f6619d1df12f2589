// The filters of the list of jobs: in the address, in requests, as typed text and as chips.
import { instant } from './format.js';
import { TIMED } from './words.js';

// The filters by their names in the API; `within` is the page's own, so that an address means the same tomorrow.
const NAMES = ['state', 'queue', 'task', 'tag', 'worker', 'schedule', 'unique_key', 'q', 'error', 'late_over', 'within',
  'created_after', 'created_before', 'ended_after', 'ended_before'];
const PAYLOAD = 'payload.';
export const WITHIN = { '15m': 15, '1h': 60, '24h': 24 * 60, '7d': 7 * 24 * 60 }; // minutes

const isFilter = (name) => NAMES.includes(name) || name.startsWith(PAYLOAD);
export const filtersOf = (query) => Object.fromEntries(Object.entries(query).filter(([name, value]) => isFilter(name) && value));

const exact = (micros) => new Date(micros / 1000).toISOString();

// The parameters of GET /v1/jobs, as of an instant in microseconds.
export function toParameters(query, at) {
  const { within, ...found } = filtersOf(query);
  if (WITHIN[within]) found.created_after = exact(at - WITHIN[within] * 60e6);
  return found;
}

// The condition of an operation on all jobs that match, as of an instant: what changes later does not join.
// Returns {where} or {reason} why there is no such operation.
export function toWhere(query, action, at) {
  const where = {};
  for (const [name, value] of Object.entries(toParameters(query, at))) {
    if (name.startsWith(PAYLOAD)) where.payload = { ...where.payload, [name.slice(PAYLOAD.length)]: value };
    else where[name] = value;
  }
  const states = where.state?.split(',') ?? [];
  if (states.length > 1) return { reason: 'Choose one state: an operation takes one.' };
  if (states.length && !CHANGES[action].includes(states[0])) return { reason: `A job that is ${states[0]} cannot be changed so.` };
  // A job that fails after the count would otherwise be retried with the others.
  const bound = action === 'retry' || action === 'delete' ? 'ended_before' : 'created_before';
  if (!where[bound] || instant(where[bound]) > at) where[bound] = exact(at);
  return { where };
}

// The states that each operation changes.
export const CHANGES = {
  retry: ['failed', 'cancelled', 'expired'],
  run: TIMED,
  cancel: ['scheduled', 'blocked', 'queued', 'running', 'retrying'],
  delete: ['completed', 'failed', 'cancelled', 'expired'],
};

// The order of the list: 'due' begins with what comes next, and only jobs that wait for their time have it.
const statesOf = ({ state }) => state?.split(',').filter(Boolean) ?? [];
export const canBeDue = (query) => statesOf(query).length > 0 && statesOf(query).every((state) => TIMED.includes(state));
export const orderOf = (query) => (query.order === 'due' && canBeDue(query) ? 'due' : undefined);

// Read typed text: task:charge_card payload.order:9781 error~"502", and words to search for.
const TOKEN = /(?:(payload(?:\.[^\s:~="]+)+|[a-z_]+)[:~=])?("(?:[^"\\]|\\.)*"|\S+)/g;

export function parseTyped(text) {
  const changes = {};
  const words = [];
  for (const [whole, name, value] of text.matchAll(TOKEN)) {
    const bare = value.startsWith('"') ? value.slice(1, -1).replaceAll('\\"', '"') : value;
    if (name && isFilter(name)) changes[name] = bare;
    else words.push(name ? whole : bare);
  }
  if (words.length) changes.q = words.join(' ');
  return changes;
}

const SAID = {
  q: (value) => `"${value}"`, error: (value) => `error has "${value}"`, late_over: (value) => `later than ${value}`, within: (value) => `last ${value}`,
  created_after: (value) => `created from ${value}`, created_before: (value) => `created before ${value}`,
  ended_after: (value) => `ended from ${value}`, ended_before: (value) => `ended before ${value}`,
};

// What a chip says; states have buttons of their own.
export const chipsOf = (query) => Object.entries(filtersOf(query)).filter(([name]) => name !== 'state')
  .map(([name, value]) => ({ name, text: SAID[name]?.(value) ?? `${name.replaceAll('_', ' ')}: ${value}` }));

// Whether a job of an event matches; null if its data does not tell.
export function matches(query, job) {
  const found = filtersOf(query);
  const states = found.state?.split(',');
  if (states && !states.includes(job.state)) return false;
  for (const name of ['queue', 'task', 'worker']) if (found[name] && found[name] !== job[name]) return false;
  const told = ['state', 'queue', 'task', 'worker', 'within'];
  return Object.keys(found).every((name) => told.includes(name)) ? true : null;
}
