// What the server tells while the page is open: the state of the connection, the figures of each second,
// and the changes that a screen follows.
import { address, get, isLoggedOut } from './api.js';
import { batch, effect, signal, useEffect, useRef } from './base.js';
import { SKEW_SAID, instant, skew } from './format.js';
import { features, loadMe } from './me.js';
import { Stream } from './stream.js';

// 'connecting', 'live', 'reconnecting', 'full' (the server has no room for another stream), 'off'
export const connection = signal('connecting');
export const tick = signal(null); // the data of the last event `tick`
export const summary = signal(null); // the last GET /v1/summary
export const heardAt = signal(0); // when the server was heard last, by the browser's clock, in ms

const POLL_MS = 5_000; // of the summary and of what is shown, while the server has no room for a stream
const COUNTING_MS = 2_000;
const HERE_MS = 20_000;
const AGAIN_MS = 1_000;
const TOGETHER_MS = 20;
const IDLE_MS = 300;
const wants = new Map(); // of each user of the stream: topics
const handlers = new Map(); // event -> functions
let send = null;
let port = null; // of the shared worker
let telling = null; // the timer
let opened = ''; // the query of the stream that is open
let isShown = false; // whether a screen is shown

export function on(event, handler) {
  if (!handlers.has(event)) handlers.set(event, new Set());
  handlers.get(event).add(handler);
  return () => handlers.get(event).delete(handler);
}

const emit = (event, data) => { for (const handler of handlers.get(event) ?? []) handler(data); };

function receive({ status, query, isContinued, event, data }) {
  if (status !== 'reconnecting') heardAt.value = Date.now();
  if (status) {
    const wasAway = status === 'live' && connection.peek() !== 'live';
    if (status === 'refused') isLoggedOut.value = true;
    if (status === 'live' || status === 'reconnecting' || status === 'full') connection.value = status;
    if (wasAway && opened) {
      loadSummary();
      loadMe(); // the tokens may have changed with the server
    }
    if (status === 'live' && (query !== opened || (wasAway && !isContinued))) {
      opened = query;
      emit('opened');
    }
    return;
  }
  if (event === 'tick') {
    batch(() => {
      measureSkew(data.now);
      tick.value = data;
    });
  }
  if (event === 'reset' || event === 'gap') {
    loadSummary();
    emit('missed', data);
  }
  emit(event, data);
}

function measureSkew(text) {
  const found = instant(text) - Date.now() * 1000;
  // Small differences are the way of the message; they would only make countdowns jump.
  skew.value = Math.abs(found) > SKEW_SAID || skew.peek() === null ? found : skew.peek() * 0.9 + found * 0.1;
}

// Read the summary again; the screens see it as a signal.
export async function loadSummary() {
  try {
    const found = await get('/v1/summary');
    batch(() => {
      heardAt.value = Date.now();
      measureSkew(found.now);
      features.value = found.features;
      summary.value = found;
    });
    // A large store counts its waiting jobs in the first seconds.
    if (found.states === null) setTimeout(loadSummary, COUNTING_MS);
  } catch (error) {
    if (!error.status && connection.peek() === 'connecting') connection.value = 'reconnecting';
  }
}

function tellWants() {
  clearTimeout(telling);
  telling = null;
  send?.(document.hidden ? [] : [...new Set([...wants.values()].flat())]);
}

// Follow anew after a login.
export function followAgain() {
  send?.([]);
  tellWants();
}

// Tell it together with what changes right afterwards: each change of topics is another stream.
// Nothing before the first screen is shown: so the first stream has all topics of the screen.
function tellWantsSoon() {
  if (!isShown || !send) return;
  telling ??= setTimeout(tellWants, TOGETHER_MS);
}

// Tell that a screen is shown: its parts have said what they follow.
export function follow() {
  isShown = true;
  tellWantsSoon();
}

// Follow topics while a component is shown: tick, jobs, schedules, queues, workers, job:ID, schedule:NAME.
// reload is called when the stream may have missed something: then the screen reads its data again.
export function useLive(topics, reload) {
  const latest = useRef(); // it reads what is shown then, which the first one does not know
  latest.current = reload;
  useEffect(() => {
    const key = {};
    wants.set(key, topics);
    tellWantsSoon();
    const stop = ['missed', 'opened'].map((event) => on(event, () => latest.current?.()));
    return () => {
      for (const each of stop) each();
      wants.delete(key);
      tellWantsSoon();
    };
  }, [topics.join()]);
}

// Call a function for each event of this name while a component is shown.
export const useEvent = (event, handler, deps = []) => useEffect(() => on(event, handler), deps);

// The address of the shared worker: the one that the policy `schedo` of trusted types lets through.
function trustWorker() {
  const url = new URL('../stream_worker.js', import.meta.url).href;
  const policy = window.trustedTypes?.createPolicy('schedo', {
    createScriptURL: (text) => {
      if (text !== url) throw new TypeError('this is not the worker of the page');
      return text;
    },
  });
  return policy ? policy.createScriptURL(url) : url;
}

// Join the shared worker, or start it. Its files are read only now, so the server may have gone since the page was read.
function join(url) {
  const worker = new SharedWorker(url, { type: 'module', name: 'schedo' });
  worker.onerror = () => {
    connection.value = 'reconnecting';
    setTimeout(() => { join(url); tellWants(); }, AGAIN_MS);
  };
  port = worker.port;
  port.onmessage = ({ data }) => receive(data);
}

// Open the stream. Without shared workers the page has a stream of its own, which is closed while it is hidden.
function connect() {
  if (window.SharedWorker) {
    join(trustWorker());
    send = (wanted) => port.postMessage({ wanted });
    setInterval(tellWants, HERE_MS);
    addEventListener('pagehide', () => port.postMessage({ bye: true }));
    addEventListener('pageshow', ({ persisted }) => { if (persisted) tellWants(); });
  } else {
    const stream = new Stream(address('/v1/events').href, receive);
    send = (wanted) => stream.want(new Set(wanted));
  }
  tellWantsSoon();
}

const whenIdle = window.requestIdleCallback ?? setTimeout;

// Read the first data, and then follow the changes: a worker that starts at the same time would delay the data.
export function start() {
  wants.set('page', ['tick']);
  document.addEventListener('visibilitychange', () => {
    tellWants();
    if (document.hidden) opened = '';
    else loadSummary().then(() => emit('missed'));
  });
  effect(() => {
    if (connection.value !== 'full') return undefined;
    const timer = setInterval(() => { if (!document.hidden) loadSummary().then(() => emit('missed')); }, POLL_MS);
    return () => clearInterval(timer);
  });
  loadMe();
  loadSummary().then(() => whenIdle(connect, { timeout: IDLE_MS }));
}
