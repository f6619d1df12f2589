import type { Progress } from "./job.js";
import { toSafeText } from "./output.js";

const INTERVAL_MS = 100; // a handler may report in a tight loop
const LOG_CHARACTERS_MAX = 16_384;

export type Update = Progress & { log?: string };

/** Return both updates as one: later values replace earlier ones, log lines are joined. */
export function merge(earlier: Update | undefined, later: Update | undefined): Update {
  const merged = { ...earlier, ...later };
  if (earlier?.log !== undefined && later?.log !== undefined) merged.log = `${earlier.log}\n${later.log}`;
  if (merged.log !== undefined) merged.log = toSafeText(merged.log.slice(-LOG_CHARACTERS_MAX));
  if (merged.message !== undefined) merged.message = toSafeText(merged.message.slice(0, 1_000));
  return merged;
}

/** Merges the progress of each attempt for an interval, and sends the sum. */
export class ProgressThrottle {
  #updates = new Map<string, Update>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly send: (lease: string, update: Update) => void) {}

  add(lease: string, update: Update): void {
    this.#updates.set(lease, merge(this.#updates.get(lease), update));
    this.#timer ??= setTimeout(() => this.#flush(), INTERVAL_MS);
  }

  /** Drop the pending update of an attempt that has ended. */
  forget(lease: string): void {
    this.#updates.delete(lease);
  }

  /** Drop all pending updates. */
  close(): void {
    clearTimeout(this.#timer);
    this.#updates.clear();
  }

  #flush(): void {
    this.#timer = undefined;
    const updates = this.#updates;
    this.#updates = new Map();
    for (const [lease, update] of updates) this.send(lease, update);
  }
}
