// The filters of the list: states as buttons, one field for all others, and a chip for each that is set.
import { get } from '../../lib/api.js';
import { html, useEffect, useRef, useState } from '../../lib/base.js';
import { compact } from '../../lib/format.js';
import { canBeDue, chipsOf, filtersOf, orderOf, parseTyped, WITHIN } from '../../lib/job_query.js';
import { useKeys } from '../../lib/keys.js';
import { link, setQuery } from '../../lib/router.js';
import { ENDED, NEXT, STATES } from '../../lib/words.js';
import { Glyph } from '../../parts/state.js';

// A change of filters goes back to the first page.
const change = (changes) => setQuery({ ...changes, cursor: '' }, { push: true });

// counts: of the jobs that wait or run now, by state; ended: of those that ended in the last 24 hours.
export function Filters({ query, counts, ended }) {
  const known = ended ? { ...counts, ...Object.fromEntries(ENDED.map((state) => [state, ended[state]])) } : counts;
  const meaningOf = (state, meaning) => `The job ${meaning}.${ENDED.includes(state) && ended ? ' The number is that of the last 24 hours.' : ''}`;
  const states = new Set(query.state?.split(',').filter(Boolean));
  const toggle = (state) => {
    if (!states.delete(state)) states.add(state);
    change({ state: Object.keys(STATES).filter((each) => states.has(each)).join(',') });
  };
  const chips = chipsOf(query);
  const clear = () => change(Object.fromEntries(Object.keys(filtersOf(query)).map((name) => [name, ''])));
  return html`<div class="filters">
    <div class="states" role="group" aria-label="States">${Object.entries(STATES).map(([state, meaning]) => html`
      <button class="chip" aria-pressed=${states.has(state)} title=${meaningOf(state, meaning)} onClick=${() => toggle(state)}>
        <${Glyph} state=${state}/>${state}${known?.[state] !== undefined && html` <span class="muted">${compact(known[state])}</span>`}</button>`)}
      ${ended && html`<a class="small" href=${link('/stats')}>ended: in the last 24 hours</a>`}</div>
    <div class="search"><${Search}/><${Within} query=${query}/><${Order} query=${query}/></div>
    ${chips.length > 0 && html`<div class="chips" role="group" aria-label="Filters">${chips.map(({ name, text }) => html`
      <button class="chip set" onClick=${() => change({ [name]: '' })} aria-label=${`${text}, remove this filter`}>${text}<span aria-hidden="true">✕</span></button>`)}
      <button class="btn small quiet" onClick=${clear}>Clear all</button></div>`}</div>`;
}

const KINDS = { queues: 'queue', tasks: 'task', schedules: 'schedule', workers: 'worker', tags: 'tag' };
const HINTS = ['payload.order:', 'error:', 'late_over:10ms'];

// The names that the server knows, as suggestions of a whole filter.
function Search() {
  const [typed, setTyped] = useState('');
  const [names, setNames] = useState({});
  const field = useRef();
  useKeys([{ keys: 'f', help: 'filter the jobs', group: 'Lists', run: () => field.current.focus() }]);
  useEffect(() => { get('/v1/names').then(setNames, () => {}); }, []);
  const submit = (event) => {
    event.preventDefault();
    change(parseTyped(typed));
    setTyped('');
  };
  const suggestions = Object.entries(KINDS).flatMap(([kind, name]) => (names[kind] ?? []).slice(0, 100).map((each) => `${name}:${each}`));
  return html`<form role="search" onSubmit=${submit}><input type="search" ref=${field} list="job-filters" aria-label="Filter the jobs" autocomplete="off" spellcheck=${false}
      placeholder=${'Filter: task:charge_card payload.order:9781 error~"502", or a text'} value=${typed} onInput=${(event) => setTyped(event.target.value)}/>
    <datalist id="job-filters">${[...suggestions, ...HINTS].map((each) => html`<option value=${each}/>`)}</datalist><button type="submit" class="btn">Filter</button></form>`;
}

const Within = ({ query }) => html`<select aria-label="Created within" value=${query.within ?? ''} onChange=${(event) => change({ within: event.target.value })}>
  <option value="" selected=${!query.within}>created at any time</option>
  ${Object.keys(WITHIN).map((each) => html`<option value=${each} selected=${query.within === each}>created in the last ${each}</option>`)}</select>`;

function Order({ query }) {
  const isDue = orderOf(query) === 'due';
  const next = () => change(canBeDue(query) ? { order: 'due' } : NEXT);
  return html`<div class="seg" role="group" aria-label="Order"><button aria-pressed=${!isDue} onClick=${() => change({ order: '' })}>newest first</button>
    <button aria-pressed=${isDue} title="The jobs that wait for their time, the soonest first" onClick=${next}>what comes next</button></div>`;
}
