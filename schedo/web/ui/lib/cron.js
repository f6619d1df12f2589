// What a rule means, asked while it is typed: its words, warnings, fires of a year, changes of the clock, and who fires with it.
import { post } from './api.js';
import { instant, iso, now } from './format.js';
import { lastDays } from './zones.js';

const COUNT = 400; // a year of a daily rule, and some
const YEAR_DAYS = 366;
const DAY_US = 86_400 * 1e6;
const NAME = /^(?!\.{1,2}$)[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$/;

// The days of the coming year on which the zone's clock changes, as ranges around their nights.
function changeDays(tz) {
  const end = now() + YEAR_DAYS * DAY_US;
  return lastDays(tz, end, YEAR_DAYS).filter((each) => each.changes).map(({ day }) => {
    const noon = Date.parse(`${day}T12:00:00Z`) * 1000;
    return { from: iso(noon - DAY_US), to: iso(noon + DAY_US) };
  });
}

const FIELDS = { '/from': '/start_at', '/to': '/end_at' }; // of a schedule, by those of the question

// The microseconds of an instant as a person types it, with Z or an offset such as +01:00; NaN: it is none that the API takes.
export const typedInstant = (text) => (/^\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\d\d(\.\d+)?(z|[+-]\d\d:\d\d)$/i.test(text) ? Date.parse(text.toUpperCase().replace(' ', 'T')) * 1000 : NaN);

// The question about the rule of a schedule's body; null if it has none yet, or fires once.
export function questionOf({ cron, every, tz, dst, start_at: from, end_at: to }, name) {
  if (!cron?.trim() && !every?.trim()) return null;
  const isLater = from && typedInstant(from) > now();
  return { ...(cron === undefined ? { cron: `@every ${every.trim()}` } : { cron, tz, dst }), from: isLater ? from : undefined, to, name: NAME.test(name ?? '') ? name : undefined };
}

// What a question is answered; throw ApiError, whose pointers are those of the schedule.
export async function explain(question) {
  try {
    return await explainYear(question);
  } catch (error) {
    const isInterval = question.cron.startsWith('@every ') && !question.tz;
    for (const each of error.problem?.errors ?? []) each.pointer = FIELDS[each.pointer] ?? (isInterval ? '/every' : each.pointer);
    throw error;
  }
}

// A rule that fires often is asked again for the days of changes only.
async function explainYear(body) {
  const found = await post('/v1/cron:explain', { ...body, count: COUNT, coincidences: true });
  const last = found.next_fires.at(-1);
  if (found.next_fires.length < COUNT || instant(last) > now() + YEAR_DAYS * DAY_US) return found;
  const further = await Promise.all(changeDays(found.tz).map((range) => post('/v1/cron:explain', { ...body, ...range, count: 500 })));
  return { ...found, isCut: true, clock_changes: further.flatMap((each) => each.clock_changes) };
}

// The rule with H in the place of a fixed minute, which spreads schedules over the hour; null if it has none.
export function spread(cron) {
  const fields = cron.trim().split(/\s+/);
  const at = fields.length === 6 ? 1 : 0;
  if (fields.length < 5 || fields.length > 6 || !/^\d+$/.test(fields[at])) return null;
  return fields.map((field, place) => (place === at ? 'H' : field)).join(' ');
}

