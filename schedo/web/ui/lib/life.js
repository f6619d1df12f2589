// The life of a job as steps between instants, told by GET /v1/jobs/{id}/history.
import { instant, now } from './format.js';
import { ENDED } from './words.js';

const at = (text) => (text ? instant(text) : null);

// When the job ended, in microseconds; null while it has not.
export const endOf = (job) => at(job.completed_at ?? job.failed_at ?? job.cancelled_at ?? job.expired_at);

// Return {steps: [{kind, label, from, to}], marks: [{name, at}]}; there is one mark more than steps.
// kind: wait, store, late, good, run, bad.
export function tellLife({ items, state }) {
  const life = new Life(items[0], items.filter((each) => each.what === 'changed').map((each) => at(each.at)));
  for (const item of items.slice(1)) if (item.outcome !== 'stale') life.tell(item);
  life.tellPresent(state);
  return life;
}

// What the time until an entry was for, by what the entry is: [kind, label].
const UNTIL = {
  created: () => ['late', 'late'], // a run of a schedule is made when it is due
  durable: () => ['store', 'made durable'],
  due: (life, item) => ['wait', life.wasChanged(at(item.at)) ? 'until it was changed' : life.attempts ? 'waits to retry' : 'waits for its time'],
  picked: (life) => ['late', life.isDue ? 'late' : 'waits to start'],
  started: (life) => ['late', life.wasPicked ? 'on its way' : life.isDue ? 'late' : 'waits to start'],
  ended: (life, { attempt, outcome }) => [outcome === 'completed' ? 'good' : 'bad', `attempt ${attempt}: ${outcome}`],
  cancel_requested: (life) => ['run', `attempt ${life.attempts} runs`],
};
const WAITED = ['wait', 'waited'];
const NAMES = { cancel_requested: 'asked to stop' };
const SAME = 1000; // microseconds between a change by hand and what follows from it, at most

// What was done to a job by hand, by the operation of the API.
const DEEDS = { retry_job: 'retried', cancel_job: 'cancelled', run_job: 'run early', update_job: 'changed', trigger_schedule: 'triggered' };
export const deedOf = ({ action }) => DEEDS[action] ?? 'changed';

// What an entry is called.
export const nameOf = (item) => {
  if (item.what === 'finished') return item.outcome;
  return item.what === 'changed' ? `${deedOf(item)} by ${item.by}` : NAMES[item.what] ?? item.what;
};

class Life {
  // first: the first entry; changes: the instants of the changes by hand.
  constructor(first, changes) {
    this.changes = changes;
    this.steps = [];
    this.marks = [{ name: nameOf(first), at: at(first.at) }];
    this.attempts = 0; // that were started
    this.isDue = first.what === 'due'; // whether its time has come, and it has not started since
    this.wasPicked = false; // whether the last entry was a pick
  }

  wasChanged(instantOf) { return this.changes.some((each) => Math.abs(each - instantOf) < SAME); }

  // A step from the last mark to an instant, which gets a mark; what happens in the same instant shares one.
  add([kind, label], name, to) {
    const last = this.marks.at(-1);
    if (to > last.at) {
      this.steps.push({ kind, label, from: last.at, to });
      this.marks.push({ name, at: to });
    } else if (name && this.steps.length) last.name = name;
    else if (name) last.name += `, ${name}`;
  }

  tell(item) {
    const last = this.marks.at(-1);
    if (item.what === 'changed' && this.steps.length && at(item.at) - last.at < SAME) { // it is what led to the last entry
      last.name = nameOf(item);
      return;
    }
    this.add(UNTIL[item.what]?.(this, item) ?? WAITED, nameOf(item), at(item.at));
    this.wasPicked = item.what === 'picked';
    if (item.what === 'started') this.attempts = item.attempt;
    if (item.what === 'due') this.isDue = true;
    else if (['picked', 'started', 'durable'].includes(item.what)) this.isDue = false;
  }

  // What goes on now, unless its time is still to come.
  tellPresent(state) {
    if (this.marks.at(-1).at >= now()) return;
    if (state === 'running') this.add(['run', `attempt ${this.attempts} runs`], 'now', now());
    else if (!ENDED.includes(state)) this.add(['wait', state === 'blocked' ? 'waits for an earlier run' : 'waits for a worker'], 'now', now());
  }
}

// The attempts that have ended: [{attempt, outcome, started_at, ended_at, worker, error}].
export function listAttempts(items) {
  const started = new Map(items.filter((each) => each.what === 'started').map((each) => [each.attempt, each.at]));
  return items.filter((each) => each.what === 'ended').map((each) => ({ ...each, started_at: started.get(each.attempt), ended_at: each.at }));
}
