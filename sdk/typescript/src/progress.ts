import type { Progress } from "./job.js";
import type { Message } from "./outbox.js";
import { toSafeText } from "./output.js";

const INTERVAL_MS = 100; // a handler may report in a tight loop

type Update = Progress & { log?: string };

/** Merges the progress of each attempt for an interval, and sends the sum. */
export class ProgressThrottle {
  #updates = new Map<string, Update>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly send: (message: Message) => void) {}

  /** Add an update: new values replace earlier ones, log lines are joined. */
  add(lease: string, update: Update): void {
    const known = this.#updates.get(lease);
    const merged = { ...known, ...update };
    if (known?.log !== undefined && update.log !== undefined) merged.log = `${known.log}\n${update.log}`;
    this.#updates.set(lease, merged);
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
    for (const [lease, update] of updates) {
      const entry = { lease, ...update };
      if (entry.log !== undefined) entry.log = toSafeText(entry.log.slice(-16_384));
      if (entry.message !== undefined) entry.message = toSafeText(entry.message.slice(0, 1_000));
      this.send({ field: "progress", lease, json: JSON.stringify(entry) });
    }
  }
}
