// The life of a job as steps between instants: what it waited for, and how each attempt went.
import { instant, now } from './format.js';
import { ENDED } from './words.js';

const at = (text) => (text ? instant(text) : null);

// When the job ended, in microseconds; null while it has not.
export const endOf = (job) => at(job.completed_at ?? job.failed_at ?? job.cancelled_at ?? job.expired_at);

// Return {steps: [{kind, label, from, to}], marks: [{name, at}]}; there is one mark more than steps.
// kind: wait, late, good, run, bad. attempts: the items of GET /v1/jobs/{id}/attempts.
export function tellLife(job, attempts) {
  const life = new Life(at(job.created_at));
  addStart(life, job, attempts);
  attempts.forEach((each, index) => addAttempt(life, each, attempts[index + 1]));
  addPresent(life, job, attempts);
  return life;
}

class Life {
  constructor(created) {
    this.steps = [];
    this.marks = [{ name: 'created', at: created }];
  }

  get last() { return this.marks.at(-1); }

  // A step from the last mark to an instant, which gets a mark of its own.
  add(kind, label, to, name) {
    this.steps.push({ kind, label, from: this.last.at, to: Math.max(to, this.last.at) });
    this.marks.push({ name, at: to });
  }
}

// Until the first attempt was picked. A retry overwrites the due instant, so then only the whole is known.
function addStart(life, job, attempts) {
  const due = at(job.scheduled_at);
  const first = at(attempts.length ? attempts[0].started_at ?? attempts[0].ended_at : job.started_at ?? job.picked_at);
  const wasRetried = attempts.length > 0 || job.failures > 0;
  if (!wasRetried && due - life.last.at > 1000 && (first || due < now())) life.add('wait', 'waits for its time', due, 'due');
  if (first !== null) life.add('late', wasRetried || life.steps.length === 0 ? 'to first start' : 'late', first, 'started');
}

function addAttempt(life, attempt, next) {
  const ended = at(attempt.ended_at);
  life.add('bad', `attempt ${attempt.attempt}: ${attempt.outcome}`, ended, 'ended');
  const again = at(next?.started_at);
  if (again !== null) life.add('wait', 'waits to retry', again, 'started');
}

// What follows the ended attempts: the attempt that runs or completed it, or what it waits for now.
function addPresent(life, job, attempts) {
  const ended = endOf(job);
  const started = at(job.started_at ?? job.picked_at);
  const isListed = attempts.some((each) => each.attempt === job.attempt);
  if (started !== null && !isListed) {
    if (attempts.length && started > life.last.at) life.add('wait', 'waits to retry', started, 'started');
    if (ended !== null) life.add(job.state === 'completed' ? 'good' : 'bad', `attempt ${job.attempt}: ${job.state}`, ended, job.state);
    else if (job.state === 'running') life.add('run', `attempt ${job.attempt} runs`, now(), 'now');
  } else if (ended !== null) {
    if (life.steps.length && ended - life.last.at < 1000) life.last.name = job.state;
    else life.add('wait', 'waited', ended, job.state);
  }
  if (!ENDED.includes(job.state) && job.state !== 'running') addWaiting(life, job);
}

function addWaiting(life, job) {
  const due = at(job.scheduled_at);
  const present = now();
  if (due > present) life.add('wait', job.state === 'retrying' ? 'waits to retry' : 'waits for its time', due, 'due');
  else {
    if (job.failures && due > life.last.at) life.add('wait', 'waits to retry', due, 'due');
    life.add('wait', job.state === 'blocked' ? 'waits for an earlier run' : 'waits for a worker', present, 'now');
  }
}
