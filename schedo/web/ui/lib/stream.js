// One stream of GET /v1/events, kept open: it reconnects, and tells when something was missed.
// It runs in the shared worker, or in a page of a browser that has none.

const WAITS_MS = [200, 500, 1000, 1500]; // before each attempt to connect again; the last one repeats
const FULL_MS = 20_000; // a server with too many streams is asked again after this time
const SILENT_MS = 40_000; // the server sends a comment each 15 s

// Split text into events. Returns [events, rest]; an event is {id, event, data}.
export function parse(text) {
  const blocks = text.split('\n\n');
  const rest = blocks.pop();
  const events = blocks.map((block) => {
    const found = {};
    for (const line of block.split('\n')) {
      const colon = line.indexOf(':');
      if (colon > 0) found[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
    }
    return found;
  }).filter((found) => found.event);
  return [events, rest];
}

// How many a stream can watch; of more it takes all changes.
const WATCHED = { job: 16, schedule: 1 };

// The query for what is wanted: topics, job:ID and schedule:NAME.
export function makeQuery(wanted) {
  const topics = new Set();
  const query = new URLSearchParams();
  for (const [kind, most] of Object.entries(WATCHED)) {
    const names = [...wanted].filter((each) => each.startsWith(kind + ':')).map((each) => each.slice(kind.length + 1));
    if (names.length > most) topics.add('jobs').add('schedules');
    else if (names.length) query.set(kind, names.sort().join(','));
  }
  for (const each of wanted) if (!each.includes(':')) topics.add(each);
  if (topics.size) query.set('topics', [...topics].sort().join(','));
  return query.toString();
}

export class Stream {
  // url: of /v1/events; tell: gets {status} and {event, data}.
  constructor(url, tell) {
    this.url = url;
    this.tell = tell;
    this.query = '';
    this.wanted = new Set();
    this.gone = new Set(); // of what is wanted: the jobs and schedules that the server does not know
    this.lastId = null;
    this.failures = 0;
    this.isRefused = false;
    this.controller = null;
    this.timer = null;
  }

  // Follow these topics from now on; none of them ends the stream.
  want(wanted) {
    this.wanted = new Set(wanted);
    for (const each of this.gone) if (!this.wanted.has(each)) this.gone.delete(each);
    const query = makeQuery([...this.wanted].filter((each) => !this.gone.has(each)));
    if (query === this.query) return;
    this.query = query;
    this.close();
    if (query) this.open();
    else this.lastId = null;
  }

  close() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.controller = null;
  }

  // Connect again after a refusal: the browser may have logged in.
  again() {
    if (this.isRefused && this.query) this.open();
  }

  async open() {
    this.isRefused = false;
    const controller = new AbortController();
    this.controller = controller;
    let wait = null;
    try {
      const headers = this.lastId === null ? {} : { 'last-event-id': this.lastId };
      const response = await fetch(`${this.url}?${this.query}`, { headers, signal: controller.signal, cache: 'no-store' });
      wait = this.judge(response);
      if (wait === null) await this.read(response.body.getReader(), controller);
    } catch {
      // The reason does not matter: what follows an end and an error is the same.
    }
    if (this.controller !== controller) return; // closed meanwhile, or opened anew
    if (wait === null) this.tell({ status: 'reconnecting' });
    wait ??= WAITS_MS[Math.min(this.failures, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2);
    this.failures += 1;
    if (wait !== Infinity) this.timer = setTimeout(() => this.open(), wait);
  }

  // Tell how the server answered; return how long to wait before the next attempt, or null.
  judge(response) {
    if (response.ok) {
      this.failures = 0;
      this.tell({ status: 'live', query: this.query, isContinued: this.lastId !== null }); // else nothing says what was missed
      return null;
    }
    if (response.status === 401 || response.status === 403) {
      this.isRefused = true;
      this.tell({ status: 'refused' });
      return Infinity;
    }
    if (response.status === 404) { // the job or schedule is gone; what else is wanted goes on
      for (const each of this.wanted) if (each.includes(':')) this.gone.add(each);
      this.query = makeQuery([...this.wanted].filter((each) => !this.gone.has(each)));
      return this.query ? 0 : Infinity;
    }
    this.tell({ status: response.status === 503 ? 'full' : 'reconnecting' });
    return response.status === 503 ? FULL_MS * (0.1 + Math.random() / 5) : WAITS_MS.at(-1);
  }

  async read(reader, controller) {
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const silence = setTimeout(() => controller.abort(), SILENT_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(silence));
      if (done) return;
      const [events, unread] = parse(rest + decoder.decode(value, { stream: true }));
      rest = unread;
      for (const { id, event, data } of events) {
        this.lastId = id ?? this.lastId;
        this.tell({ event, data: JSON.parse(data) });
      }
    }
  }
}
