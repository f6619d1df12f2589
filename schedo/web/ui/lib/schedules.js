// Schedules as the screens need them: rules and outcomes in words, and the request that puts one again.
import { duration, instant, micros } from './format.js';

// The decisions about an instant, each with its sign in pictures and what it means.
export const DECISIONS = {
  fired: { word: 'fired', means: 'a run was made on time', tone: 'ok' },
  late: { word: 'late', means: 'a run was made more than 1 s after the instant', tone: 'warn' },
  caught_up: { word: 'caught up', means: 'a run was made later for an instant that was missed', tone: 'warn' },
  manual: { word: 'triggered', means: 'a user made a run by hand', tone: 'hand' },
  buffered: { word: 'held back', means: 'the run waits for the end of the earlier one', tone: 'warn' },
  coalesced: { word: 'coalesced', means: 'a later run stands for this instant, too', tone: 'quiet' },
  skipped_overlap: { word: 'skipped', means: 'an earlier run was not finished', tone: 'quiet' },
  paused: { word: 'paused', means: 'it passed while the schedule was paused', tone: 'quiet' },
  missed: { word: 'missed', means: 'no server could fire it, and catch-up leaves it out', tone: 'bad' },
  expectation_missed: { word: 'expectation missed', means: 'the expected run did not come in time', tone: 'bad' },
  expectation_back: { word: 'expectation met again', means: 'the expected run has come', tone: 'ok' },
};
const LATE_US = 1e6;

// Which of DECISIONS a decision is shown as.
export function verdictOf({ decision, scheduled_for: due, decided_at: decided }) {
  return decision === 'fired' && instant(decided) - instant(due) > LATE_US ? 'late' : decision;
}

// The rule as it is written: cron, interval or instant.
export const ruleOf = (schedule) => schedule.cron ?? (schedule.every ? `every ${schedule.every}` : `at ${schedule.at?.slice(0, 19)}Z`);

// The median duration of the last runs that completed, in microseconds; null without any.
export const medianRun = (schedule) => (schedule.median_run ? micros(schedule.median_run) : null);

const HEALTHS = {
  overdue: { word: 'overdue', tone: 'bad' },
  failing: { word: 'failing', tone: 'bad' },
  paused: { word: 'paused', tone: 'warn' },
  ended: { word: 'never fires again', tone: 'muted' },
  ok: { word: 'well', tone: 'ok' },
};

// The health of a schedule, as the server judges it: its name, its words and its tone.
export function healthOf({ health, runs }) {
  const found = { name: health, ...HEALTHS[health] };
  return health === 'failing' ? { ...found, word: `failed ${runs.failed_in_row} in a row` } : found;
}

const OPTIONS = ['timeout', 'delivery', 'tags', 'meta', 'requires', 'prefer', 'on_failure', 'keep', 'unique'];
const FIELDS = [
  'cron', 'every', 'at', 'tz', 'dst', 'jitter', 'start_at', 'end_at', 'task', 'payload', 'queue', 'priority', 'retry', 'expires_in',
  'overlap', 'catchup', 'catchup_window', 'catchup_max', 'paused', 'expect', ...OPTIONS,
];

// The body of the PUT that makes the schedule as it is shown.
export function bodyOf(schedule) {
  const body = Object.fromEntries(FIELDS.filter((name) => schedule[name] !== undefined).map((name) => [name, schedule[name]]));
  if (schedule.every || schedule.at) delete body.tz;
  if (body.retry?.preset) body.retry = body.retry.preset; // a ladder is only known by its name
  return body;
}

// Whether a value in a body holds, at any depth.
const some = (value, test) => (value && typeof value === 'object' ? Object.values(value).some((each) => some(each, test)) : test(value));

// Whether a body has a number that JavaScript has rounded: a PUT of it would change it.
export const isRounded = (body) => some(body, (value) => typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value));

// Whether a body has a masked secret, which stands for the stored one only while there is a stored one.
export const hasMask = (body) => some(body, (value) => value === '***');

// Whether a PUT of what is shown makes the same schedule after it was deleted or changed.
export const isExact = (body) => !isRounded(body) && !hasMask(body);
