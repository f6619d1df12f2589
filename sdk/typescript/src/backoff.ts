const FIRST_MS = 25; // a standby server takes over within milliseconds
const SECOND_MS = 250;
const LONGEST_MS = 5_000;
const RETRY_AFTER_MS_MAX = 60_000;
const DOUBLINGS_MAX = 10;

/** Waiting times after failures in a row: longer after each, and random, so that a thousand clients do not return together. */
export class Backoff {
  #failures = 0;

  noteSuccess(): void {
    this.#failures = 0;
  }

  /** Return the next wait in milliseconds; `retryAfterMs` is what the server asks for. */
  next(retryAfterMs?: number): number {
    this.#failures += 1;
    if (retryAfterMs !== undefined) return Math.min(retryAfterMs, RETRY_AFTER_MS_MAX) * (1 + Math.random() / 2);
    const doubled = SECOND_MS * 2 ** Math.min(this.#failures - 2, DOUBLINGS_MAX);
    return Math.random() * (this.#failures === 1 ? FIRST_MS : Math.min(LONGEST_MS, doubled));
  }
}
