// Find, or do: one field for names, ids and verbs. Matching is local, over the names that the server knows.
import { get } from '../lib/api.js';
import { html, useEffect, useMemo, useRef, useState } from '../lib/base.js';
import { may } from '../lib/me.js';
import { recent } from '../lib/prefs.js';
import { go, link } from '../lib/router.js';
import { NEXT } from '../lib/words.js';
import { SCREENS } from '../screens.js';
import { perform } from './action.js';
import { Dialog } from './dialog.js';
import { isPaletteOpen } from './later.js';
import * as queues from './queue_actions.js';
import * as schedules from './schedule_actions.js';
import { toast } from './toasts.js';

const SHOWN = 12;
const ID = /^[0-9A-HJKMNP-TV-Z]{13}$/i;

const part = encodeURIComponent;

// Pause or resume what a path has. read: what it is now, for the way back, which has the note and the end of its pause.
const turn = (verb, path, done, read, putBack) => async () => {
  try {
    await perform({ request: { path: `${path}:${verb}` }, done, undo: putBack(await read()) });
  } catch (error) {
    toast(error.text ?? error.message, { tone: 'bad' });
  }
};
const turnQueue = (verb, name, done) => turn(verb, queues.pathOf(name), `The queue ${name} ${done}.`, () => queues.readQueue(name), queues.putBack);
const turnSchedule = (verb, name, done) => turn(verb, schedules.pathOf(name), `The schedule ${name} ${done}.`, () => get(schedules.pathOf(name)), schedules.putBack);

// What can be found and done for each kind of name. Each is {text, kind, to} or {text, kind, run}.
const KINDS = {
  queues: (name) => [
    { text: name, kind: 'queue', to: link(`/queues/${part(name)}`) },
    may('pause_queue', { queue: name }) && { text: `pause queue ${name}`, kind: 'do', run: turnQueue('pause', name, 'is paused') },
    may('resume_queue', { queue: name }) && { text: `resume queue ${name}`, kind: 'do', run: turnQueue('resume', name, 'goes on') },
  ],
  schedules: (name) => [
    { text: name, kind: 'schedule', to: link(`/schedules/${part(name)}`) },
    may('trigger_schedule') && { text: `trigger ${name}`, kind: 'do', run: () => perform(schedules.trigger(name)()) },
    may('pause_schedule') && { text: `pause schedule ${name}`, kind: 'do', run: turnSchedule('pause', name, 'is paused') },
    may('resume_schedule') && { text: `resume schedule ${name}`, kind: 'do', run: turnSchedule('resume', name, 'goes on') },
  ],
  workers: (name) => [{ text: name, kind: 'worker', to: link(`/workers/${part(name)}`) }],
  tasks: (name) => [
    { text: name, kind: 'task', to: link('/jobs', { task: name }) },
    { text: `failed ${name}`, kind: 'jobs', to: link('/jobs', { task: name, state: 'failed' }) },
  ],
  tags: (name) => [{ text: name, kind: 'tag', to: link('/jobs', { tag: name }) }],
};

function listAll(names) {
  const screens = SCREENS.filter((each) => each.nav).map((each) => ({ text: each.title, kind: 'screen', to: link(each.path) }));
  const found = Object.entries(KINDS).flatMap(([kind, make]) => (names[kind] ?? []).flatMap(make));
  return [...screens, { text: 'what comes next', kind: 'jobs', to: link('/jobs', NEXT) }, { text: 'API documentation', kind: 'page', to: link('/docs') }, ...found.filter(Boolean)];
}

// How well a text matches: all words must occur; earlier and shorter is better. Infinity: not at all.
function rank(text, words) {
  const low = text.toLowerCase();
  let sum = text.length / 100;
  for (const word of words) {
    const at = low.indexOf(word);
    if (at < 0) return Infinity;
    sum += at === 0 ? 0 : /\W/.test(low[at - 1]) ? 1 : 3;
  }
  return sum;
}

function search(all, typed) {
  const text = typed.trim();
  if (!text) return [...recent.value, ...all.filter((each) => each.kind === 'screen')].slice(0, SHOWN);
  const words = text.toLowerCase().split(/\s+/);
  const found = all.map((each) => [rank(each.text, words), each]).filter(([sum]) => sum < Infinity);
  const best = found.sort(([one], [other]) => one - other).slice(0, SHOWN).map(([, each]) => each);
  if (ID.test(text)) best.unshift({ text: text.toUpperCase(), kind: 'job', to: link(`/jobs/${text.toUpperCase()}`) });
  return [...best, { text: `jobs that match "${text}"`, kind: 'search', to: link('/jobs', { q: text }) }];
}

export function Palette() {
  const [names, setNames] = useState({});
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const list = useRef();
  useEffect(() => { get('/v1/names').then(setNames, () => {}); }, []);
  const all = useMemo(() => listAll(names), [names]);
  const found = search(all, typed);
  const close = () => { isPaletteOpen.value = false; };
  const take = (item) => {
    close();
    if (item.run) item.run();
    else {
      recent.value = [{ text: item.text, kind: item.kind, to: item.to }, ...recent.value.filter((each) => each.to !== item.to)].slice(0, 6);
      if (item.kind === 'page') location.href = item.to;
      else go(item.to);
    }
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((before) => (before + step + found.length) % Math.max(1, found.length));
    else if (event.key === 'Enter' && !event.repeat && found[at]) take(found[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Find, or do" className="palette" onClose=${close}>
    <input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found.length ? `palette-${at}` : undefined}
      aria-label="Find, or do" placeholder="a name, an id, or pause, resume, trigger…" autocomplete="off" spellcheck=${false}
      value=${typed} onInput=${(event) => { setTyped(event.target.value); setAt(0); }} onKeyDown=${press}/>
    <ul id="palette-list" role="listbox" aria-label="What was found" ref=${list}>${found.map((item, index) => html`
      <li id=${`palette-${index}`} role="option" aria-selected=${index === at} onMouseMove=${() => setAt(index)} onClick=${() => take(item)}>
        <span class="kind">${item.kind}</span><span class="text">${item.text}</span></li>`)}</ul></${Dialog}>`;
}
