// The output of a job: what the store has of ended attempts, and what the running one has told so far.
import { plural } from './format.js';

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// Join the end of a stream, which ends at `end` bytes, to what was seen before: {text, end}.
// The server tells only the last 16 kB, so bytes may be missing: then the text says how many.
export function join(before, text, end) {
  if (!before || end < before.end) return { text, end };
  const tail = encoder.encode(text);
  const from = end - tail.length;
  if (from > before.end) return { text: `${before.text}\n[… ${plural(from - before.end, 'byte')} were not shown …]\n${text}`, end };
  return { text: before.text + decoder.decode(tail.slice(before.end - from)), end };
}

// Take over the progress of a running attempt: seen is what this returned before, items the reports.
// Returns {attempt, percent, message, log, stdout, stderr}; a stream is {text, end}.
export function takeProgress(seen, items) {
  const last = items.at(-1);
  if (!last) return seen;
  const before = seen?.attempt === last.attempt ? seen : {};
  const reports = items.filter((each) => each.attempt === last.attempt);
  const newest = (name) => reports.findLast((each) => each[name] !== undefined)?.[name];
  const log = reports.map((each) => each.log).filter(Boolean).join('\n');
  const now = { attempt: last.attempt, percent: newest('percent'), message: newest('message'), log };
  for (const name of ['stdout', 'stderr']) {
    const text = newest(name);
    now[name] = text === undefined ? before[name] : join(before[name], text, newest(`${name}_bytes`) ?? encoder.encode(text).length);
  }
  return now;
}

// The streams that the page shows: those of the store, then those of the running attempt.
export function listStreams(kept, progress, isRunning) {
  const live = isRunning && progress ? ['stdout', 'stderr', 'log'].flatMap((stream) => {
    const found = stream === 'log' ? progress.log && { text: progress.log, end: encoder.encode(progress.log).length } : progress[stream];
    return found ? [{ attempt: progress.attempt, stream, text: found.text, total_bytes: found.end, truncated: false, isLive: true }] : [];
  }) : [];
  const rest = kept.filter((each) => !live.some((other) => other.attempt === each.attempt && other.stream === each.stream));
  return [...live, ...rest.toReversed()];
}
