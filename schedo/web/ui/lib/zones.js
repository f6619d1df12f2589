// Days and hours as the clock of a zone shows them.
const FORMAT = { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };
const DAY_MS = 86_400_000;
const clocks = new Map();
const WEEKDAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];

function clockOf(tz) {
  if (!clocks.has(tz)) {
    try {
      clocks.set(tz, new Intl.DateTimeFormat('en-GB', { ...FORMAT, timeZone: tz }));
    } catch { // a zone that this browser does not know
      clocks.set(tz, new Intl.DateTimeFormat('en-GB', { ...FORMAT, timeZone: 'UTC' }));
    }
  }
  return clocks.get(tz);
}

// {day: '2026-11-22', hour: 2, text: '02:30:00'} of an instant in microseconds.
export function inZone(tz, at) {
  const found = Object.fromEntries(clockOf(tz).formatToParts(new Date(at / 1000)).map(({ type, value }) => [type, value]));
  return { day: `${found.year}-${found.month}-${found.day}`, hour: Number(found.hour), text: `${found.hour}:${found.minute}:${found.second}` };
}

export const clockIn = (tz, at) => inZone(tz, at).text;

// How far the zone's clock is ahead of UTC at an instant, in ms.
function offset(tz, ms) {
  const { day, text } = inZone(tz, ms * 1000);
  return Date.parse(`${day}T${text}Z`) - Math.floor(ms / 1000) * 1000;
}

// The last days, the newest first: {day, name: 'Sun 22', changes: whether the clock changes on it}.
export function lastDays(tz, at, count) {
  const today = Date.parse(`${inZone(tz, at).day}T12:00:00Z`);
  return Array.from({ length: count }, (_, back) => {
    const noon = today - back * DAY_MS;
    const date = new Date(noon);
    return {
      day: date.toISOString().slice(0, 10), name: `${WEEKDAYS[date.getUTCDay()]} ${date.getUTCDate()}`,
      changes: offset(tz, noon) !== offset(tz, noon - DAY_MS),
    };
  });
}
