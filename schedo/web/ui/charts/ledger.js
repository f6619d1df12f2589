// What was decided about each instant of a schedule: days as rows, hours as columns, a sign for each decision.
import { html } from '../lib/base.js';
import { count, duration, instant, now, plural } from '../lib/format.js';
import { link } from '../lib/router.js';
import { DECISIONS, verdictOf } from '../lib/schedules.js';
import { inZone, lastDays } from '../lib/zones.js';

const DAYS = 14;
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
// The gravest of several decisions in an hour is shown.
const GRAVITY = ['missed', 'run_failed', 'skipped_overlap', 'paused', 'coalesced', 'caught_up', 'late', 'buffered', 'manual', 'fired', 'comes', 'ranges'];
const WORDS = {
  ...DECISIONS,
  run_failed: { word: 'run failed', means: 'a run was made, and it failed', tone: 'bad' },
  comes: { word: 'comes', means: 'the next fires', tone: 'hand' },
  ranges: { word: 'comes, with jitter', means: 'the next fires; the run of each is due at some time until its jitter ends', tone: 'hand' },
};

const box = html`<rect x="1.5" y="1.5" width="9" height="9" rx="1"/>`;
const line = (d) => html`<path d=${d} fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/>`;
const hollow = html`<rect x="2.2" y="2.2" width="7.6" height="7.6" rx="1" fill="none" stroke="currentColor" stroke-width="1.4"/>`;
const SIGNS = {
  fired: box,
  run_failed: [box, html`<path d="M4 4l4 4M8 4l-4 4" stroke="var(--surface)" stroke-width="1.5" stroke-linecap="round"/>`],
  late: [hollow, line('M6 4v2.3l1.6 1')],
  caught_up: [hollow, html`<path d="M2.2 2.2h3.8v7.6h-3.8z"/>`],
  coalesced: hollow,
  buffered: [hollow, html`<path d="M2.2 6h7.6v3.8h-7.6z"/>`],
  manual: html`<path d="M2.5 10L6 2.2 9.5 10z"/>`,
  skipped_overlap: html`<circle cx="6" cy="6" r="3.8" fill="none" stroke="currentColor" stroke-width="1.4" stroke-dasharray="2 1.6"/>`,
  paused: line('M4 3v6M8 3v6'),
  missed: line('M3 3l6 6M9 3l-6 6'),
  comes: html`<circle cx="6" cy="6" r="1.5"/>`,
  ranges: [html`<circle cx="3" cy="6" r="1.5"/>`, html`<path d="M3 6h7M10 4v4" fill="none" stroke="currentColor" stroke-width="1.2" stroke-linecap="round"/>`],
};

export const Sign = ({ name }) => html`<svg class=${`sign ${WORDS[name]?.tone ?? ''}`} viewBox="0 0 12 12" fill="currentColor" aria-hidden="true">${SIGNS[name]}</svg>`;

// Sort decisions and the fires to come into days and hours: Map of "day hour" to {signs: Map of name to count, lines, job}.
export function fold(tz, decisions, fires, failedJobs) {
  const cells = new Map();
  const cellAt = (at) => {
    const { day, hour } = inZone(tz, at);
    const key = `${day} ${hour}`;
    if (!cells.has(key)) cells.set(key, { signs: new Map(), late: [], job: null });
    return cells.get(key);
  };
  const add = (cell, name, number) => cell.signs.set(name, (cell.signs.get(name) ?? 0) + number);
  for (const decision of decisions) {
    if (!SIGNS[decision.decision]) continue; // what became of an expectation is in addition to another decision
    const cell = cellAt(instant(decision.scheduled_for));
    add(cell, failedJobs.has(decision.job) ? 'run_failed' : verdictOf(decision), decision.count);
    if (decision.job) cell.job ??= decision.job;
    if (decision.decision === 'fired') cell.late.push(instant(decision.decided_at) - instant(decision.scheduled_for));
  }
  for (const { at, jitter } of fires) add(cellAt(at), jitter ? 'ranges' : 'comes', 1);
  return cells;
}

const gravest = (cell) => GRAVITY.find((name) => cell.signs.has(name));
const inWords = (cell) => GRAVITY.filter((name) => cell.signs.has(name)).map((name) => `${count(cell.signs.get(name))} ${WORDS[name].word}`).join(', ');

function Cell({ cell, place, isUnknown }) {
  if (!cell) return isUnknown ? html`<td class="unknown"></td>` : html`<td></td>`;
  const text = `${place}: ${inWords(cell)}`;
  const sign = html`<${Sign} name=${gravest(cell)}/>`;
  const isOne = cell.job && [...cell.signs.values()].reduce((sum, number) => sum + number, 0) === 1;
  return html`<td title=${text}>${isOne ? html`<a href=${link(`/jobs/${cell.job}`)} aria-label=${text}>${sign}</a>` : html`<span role="img" aria-label=${text}>${sign}</span>`}</td>`;
}

const middle = (values) => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)];

function Row({ row, cells, oldest, createdDay }) {
  const found = HOURS.map((hour) => cells.get(`${row.day} ${hour}`));
  const known = found.filter(Boolean);
  const sum = (names) => known.reduce((total, cell) => total + names.reduce((part, name) => part + (cell.signs.get(name) ?? 0), 0), 0);
  const runs = sum(['fired', 'late', 'caught_up', 'manual', 'buffered', 'run_failed']);
  const late = known.flatMap((cell) => cell.late);
  const isUnknown = (hour) => (oldest !== null && `${row.day} ${String(hour).padStart(2, '0')}` < oldest) || row.day < createdDay;
  return html`<tr><th scope="row" title=${row.changes ? `${row.day}: the clock changes` : row.day}>${row.name}${row.changes && html` <span class="dst">⌁</span>`}</th>
    ${HOURS.map((hour, at) => html`<${Cell} cell=${found[at]} place=${`${row.day} ${String(hour).padStart(2, '0')}:00`} isUnknown=${isUnknown(hour)}/>`)}
    <td class="num">${runs || ''}</td><td class="num bad">${sum(['run_failed']) || ''}</td><td class="num">${late.length ? duration(middle(late)) : ''}</td></tr>`;
}

// The days of the ledger, the newest first: from the last fire that is shown.
const daysOf = (tz, fires) => {
  const end = Math.max(now(), ...fires.map(({ at }) => at));
  return lastDays(tz, end, DAYS + (inZone(tz, end).day === inZone(tz, now()).day ? 0 : 1));
};

// decisions: newest first; isCut: older ones are no longer kept; fires: those of the next day, {at, jitter} in microseconds; failedJobs: Set of ids.
export function Ledger({ schedule, decisions, isCut, fires, failedJobs }) {
  const tz = schedule.tz;
  const cells = fold(tz, decisions, fires, failedJobs);
  const last = decisions.at(-1);
  const edge = isCut && last ? inZone(tz, instant(last.scheduled_for)) : null;
  const used = GRAVITY.filter((name) => [...cells.values()].some((cell) => cell.signs.has(name)));
  return html`<div class="table" role="region" aria-label="Decisions by day and hour" tabindex="0"><table class="ledger"><caption class="vh">Decisions of the last ${DAYS} days by day and hour in ${tz}</caption>
    <thead><tr><th scope="col"><span class="vh">Day</span></th>${HOURS.map((hour) => html`<th scope="col"><span class=${hour % 3 ? 'vh' : ''}>${String(hour).padStart(2, '0')}</span></th>`)}
      <th scope="col" class="num">Runs</th><th scope="col" class="num">Failed</th><th scope="col" class="num">Late</th></tr></thead>
    <tbody>${daysOf(tz, fires).map((row) => html`<${Row} key=${row.day} row=${row} cells=${cells}
      oldest=${edge && `${edge.day} ${String(edge.hour).padStart(2, '0')}`} createdDay=${inZone(tz, instant(schedule.created_at)).day}/>`)}</tbody></table></div>
    <p class="legend">${used.map((name) => html`<span title=${WORDS[name].means}><${Sign} name=${name}/>${WORDS[name].word}</span>`)}
      ${edge && html`<span><i class="unknown"></i>before the last ${plural(decisions.length, 'decision')}, which are kept</span>`}</p>`;
}
