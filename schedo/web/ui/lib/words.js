// Words that more than one screen uses. English only so far.

// The states of jobs in the order of a job's life, each with what it means.
export const STATES = {
  scheduled: 'waits for its instant',
  blocked: 'waits for an earlier run of its schedule',
  queued: 'is due and waits for a slot',
  running: 'is being run',
  retrying: 'has failed and will be tried again',
  completed: 'has ended well',
  failed: 'has failed and is not tried again',
  cancelled: 'was cancelled',
  expired: 'was not started in time',
};
export const WAITING = ['scheduled', 'blocked', 'queued', 'retrying'];
export const TIMED = ['scheduled', 'retrying'];
// The query of the list of jobs that has what comes next.
export const NEXT = { state: TIMED.join(','), order: 'due' };
export const ENDED = ['completed', 'failed', 'cancelled', 'expired'];

export const CONNECTION = {
  connecting: 'connecting',
  live: 'live',
  reconnecting: 'reconnecting',
  full: 'each 5 s',
  off: 'paused',
};
export const CONNECTION_HELP = {
  connecting: 'The page connects with the server.',
  live: 'The server tells each change.',
  reconnecting: 'The server does not answer. What is shown is what it said last.',
  full: 'The server has no room for another event stream, so the page asks each 5 seconds.',
  off: 'The page asks nothing while it is hidden.',
};
