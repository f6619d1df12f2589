import type { SchedoError } from "./errors.js";
import { merge, type Update } from "./progress.js";

/** One entry of a list in a worker's request; `json` is the entry. */
export interface Message {
  readonly field: "results" | "progress" | "accept" | "reject";
  readonly lease: string;
  readonly json: string;
  /** Of progress. */
  readonly update?: Update;
}

const BATCH_MESSAGES_MAX = 1_000;
const BATCH_CHARACTERS_MAX = 2 ** 21; // at most 6 MiB as UTF-8, of the 8 MiB that a request may have
const REASON_CHARACTERS_MAX = 500;

/**
 * The messages of a worker, kept until the server has confirmed them.
 *
 * Sending a message twice is harmless, so messages that were in flight when a connection broke are sent again.
 * A message that the server refuses must not hold up the others: after a refused batch the messages are sent one
 * by one, and a result that is refused alone is replaced by a failure that says why. Progress that waits is merged:
 * there is at most one message with it for each attempt, however long the server is away.
 */
export class Outbox {
  #waiting: Message[] = [];
  readonly #progress = new Map<string, Update>(); // waits as well, by lease
  readonly #inFlight = new Set<Message>();
  readonly #replaced = new Set<string>();
  #singles = 0; // this many of the next messages are sent alone

  /** Called when there is a message to send. */
  onWaiting: () => void = () => undefined;

  get hasWaiting(): boolean {
    return this.#waiting.length + this.#progress.size > 0;
  }

  get isEmpty(): boolean {
    return !this.hasWaiting && this.#inFlight.size === 0;
  }

  /** The leases whose results or replies the server may not know yet. */
  get leases(): string[] {
    return [...this.#inFlight, ...this.#waiting].filter(({ field }) => field !== "progress").map(({ lease }) => lease);
  }

  add(message: Message): void {
    this.#waiting.push(message);
    this.onWaiting();
  }

  addProgress(lease: string, update: Update): void {
    this.#progress.set(lease, merge(this.#progress.get(lease), update));
    this.onWaiting();
  }

  /** Return the messages of the next request; they are in flight from now on. */
  take(): Message[] {
    const most = this.#singles > 0 ? 1 : BATCH_MESSAGES_MAX;
    const messages: Message[] = [];
    let characters = 0;
    for (const message of this.#inOrder()) {
      characters += message.json.length;
      if (messages.length === most || (messages.length > 0 && characters > BATCH_CHARACTERS_MAX)) break;
      messages.push(message);
    }
    this.#waiting.splice(0, messages.filter(({ update }) => update === undefined).length);
    for (const message of messages) {
      if (message.update !== undefined) this.#progress.delete(message.lease);
      this.#inFlight.add(message);
    }
    if (messages.length > 0 && this.#singles > 0) this.#singles -= 1;
    return messages;
  }

  *#inOrder(): Iterable<Message> {
    yield* this.#waiting;
    for (const [lease, update] of this.#progress) {
      yield { field: "progress", lease, json: JSON.stringify({ lease, ...update }), update };
    }
  }

  /** Drop messages that the server has confirmed. */
  confirm(messages: readonly Message[]): void {
    for (const message of messages) {
      this.#inFlight.delete(message);
      this.#replaced.delete(message.lease);
    }
  }

  /** Send these messages again: they may not have arrived. */
  putBack(messages: readonly Message[]): void {
    for (const message of messages) {
      this.#inFlight.delete(message);
      const { lease, update } = message;
      if (update !== undefined) this.#progress.set(lease, merge(update, this.#progress.get(lease)));
    }
    this.#waiting.unshift(...messages.filter(({ update }) => update === undefined));
    if (messages.length > 0) this.onWaiting();
  }

  /** Send these messages alone to find the bad one, or replace it if it was alone. */
  refuse(messages: readonly Message[], error: SchedoError): void {
    const [only, ...others] = messages;
    if (only === undefined) return;
    if (others.length > 0) {
      this.#singles = Math.max(this.#singles, messages.length);
      this.putBack(messages);
      return;
    }
    this.#inFlight.delete(only);
    if (only.field !== "results" || this.#replaced.has(only.lease)) return;
    this.#replaced.add(only.lease);
    this.#singles += 1;
    const message = `the server refused the result: ${error.message.slice(0, REASON_CHARACTERS_MAX)}`;
    const failure = { lease: only.lease, outcome: "failed", retryable: false, error: { type: "result-refused", message } };
    this.putBack([{ field: "results", lease: only.lease, json: JSON.stringify(failure) }]);
  }
}
