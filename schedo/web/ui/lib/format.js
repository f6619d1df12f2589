// Instants, durations and numbers as text. Instants are microseconds since 1970, safe until 2255.
import { signal } from './base.js';
import { zone } from './prefs.js';

const SECOND = 1e6;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const two = (number) => String(number).padStart(2, '0');
const exact = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

// How far the server's clock is ahead of the browser's, in microseconds; null until it is known.
export const skew = signal(null);
// A difference that a person should know about: the clocks of the two are apart.
export const SKEW_SAID = SECOND;

// The server's present instant, as far as it is known.
export const now = () => Date.now() * 1000 + (skew.peek() ?? 0);

// The microseconds of an instant of the API, such as 2026-11-22T21:55:36.233610Z.
export function instant(text) {
  const fraction = (/\.(\d+)/.exec(text) ?? ['', '0'])[1].padEnd(6, '0').slice(0, 6);
  return Date.parse(text.slice(0, 19) + 'Z') * 1000 + Number(fraction);
}

// The instant as the API writes it, to the second.
export const iso = (at) => new Date(at / 1000).toISOString().slice(0, 19) + 'Z';

// The parts of an instant in the chosen zone: year, month, day, hour, minute, second.
function parts(at) {
  const date = new Date(at / 1000);
  if (zone.value === 'UTC') {
    return [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate(), date.getUTCHours(),
      date.getUTCMinutes(), date.getUTCSeconds()];
  }
  return [date.getFullYear(), date.getMonth() + 1, date.getDate(), date.getHours(), date.getMinutes(),
    date.getSeconds()];
}

// 14:05:09, with digits of the fraction if asked: 14:05:09.233610.
export function clock(at, digits = 0) {
  const micros = ((at % SECOND) + SECOND) % SECOND;
  const fraction = digits ? '.' + String(Math.floor(micros)).padStart(6, '0').slice(0, digits) : '';
  return parts(at).slice(3).map(two).join(':') + fraction;
}

// 14:05, for the labels of axes.
export const minuteOf = (at) => clock(at).slice(0, 5);

// 2026-11-22.
export function day(at) {
  const [year, month, date] = parts(at);
  return `${year}-${two(month)}-${two(date)}`;
}

// The clock alone for an instant of today, else with the day before it.
export function when(at, digits = 0) {
  return day(at) === day(now()) ? clock(at, digits) : `${day(at)} ${clock(at, digits)}`;
}

// A duration in microseconds with three digits: 233 µs, 5.09 ms, 1.93 s, 2 m 5 s, 3 h 12 m, 4 d 2 h.
export function duration(micros) {
  const sign = micros < 0 ? '−' : '';
  const size = Math.abs(micros);
  if (size < 999.5) return `${sign}${Math.round(size)} µs`;
  if (size < 999_500) return `${sign}${(size / 1000).toPrecision(3)} ms`;
  if (size < 59.95 * SECOND) return `${sign}${(size / SECOND).toPrecision(3)} s`;
  if (size < HOUR) return `${sign}${Math.floor(size / MINUTE)} m ${Math.floor((size % MINUTE) / SECOND)} s`;
  if (size < DAY) return `${sign}${Math.floor(size / HOUR)} h ${Math.floor((size % HOUR) / MINUTE)} m`;
  return `${sign}${Math.floor(size / DAY)} d ${Math.floor((size % DAY) / HOUR)} h`;
}

const UNITS = { us: 1, ms: 1e3, s: 1e6, m: 6e7, h: 3.6e9, d: 8.64e10, w: 6.048e11 };

// The microseconds of a duration of the API, such as 1h30m or 0.25s.
export function micros(text) {
  let sum = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)/g)) sum += Number(number) * UNITS[unit];
  return sum;
}

// The same without digits that are zero: 10 ms, 50 µs, 1 s.
export const round = (micros) => duration(micros).replace(/\.0+(?= )/, '').replace(/(\.\d*?)0+(?= )/, '$1')
  .replace(/ 0 [sm h]$/, '');

// A whole number, with commas; – if it is not known.
export const count = (number) => (number === null || number === undefined ? '–' : exact.format(Math.round(number)));

// A number in little room: 1,234 as it is, then 12.3K, 1.2M.
export function compact(number) {
  if (number === null || number === undefined) return '–';
  return Math.abs(number) >= 10_000 ? short.format(number) : exact.format(Math.round(number));
}

// 99.97 %; never rounded up to 100.
export function percent(share) {
  const value = share * 100;
  const text = value < 100 ? Math.min(99.99, value).toFixed(2) : '100';
  return `${text} %`;
}

export function bytes(number) {
  if (number < 1000) return `${number} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = number / 1000;
  let unit = 0;
  for (; value >= 999.5 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${value >= 100 ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`;
}

// "3 jobs", "1 job".
export const plural = (number, one, many = one + 's') => `${count(number)} ${number === 1 ? one : many}`;
