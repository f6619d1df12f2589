import type { Attempts } from "./attempts.js";
import { Backoff } from "./backoff.js";
import { SchedoError, Unreachable } from "./errors.js";
import { isReadable, readResponse, type Lease, type WorkResponse } from "./lease.js";
import { Outbox, type Message } from "./outbox.js";
import type { Transport } from "./transport.js";
import { Wakeup } from "./wakeup.js";

/** The longest time to a response, beyond the wait of the poll: together less than a session timeout. */
export const WORK_MS = 10_000;

const HEARTBEAT_MS = 10_000;
const LEASES_MAX = 1_000;
const LINGER_MS = 20; // with all slots busy a poll brings only stops, so it may wait for results to carry
const UNACCEPTABLE = new Set([400, 413, 422]); // the server can never accept this request
const BUSY = new Set([429, 503]);
const IDLE_FREE = 2; // this many early and empty responses in a row are normal
const LONGEST_PAUSE_MS = 1_000;
const LEAVE_MS = 5_000; // for the last results to get through

/**
 * One session of a worker (docs/protocol.md): one open poll, and at most one report in flight beside it.
 *
 * The poll lists the running attempts and brings leases and stops. A result that is ready while it is open goes to the
 * server at once, in a report. The server takes `running` as the truth: so it is sent only in a poll, when no other
 * request can bring leases, and lists every attempt that the server may have outstanding. After a lost connection a
 * poll comes before any report, because the server may have been restarted.
 */
export class Session {
  readonly outbox = new Outbox();
  readonly #offers = new Map<string, Lease>(); // accepted, not confirmed yet
  readonly #pollBackoff = new Backoff();
  readonly #reportBackoff = new Backoff();
  readonly #wakeup = new Wakeup();
  #heartbeatMs = HEARTBEAT_MS;
  #polling: AbortController | undefined;
  #reporting: Promise<void> | undefined;
  #isInContact = false; // the last poll got a response
  #hasSpoken = false; // the server has accepted this worker
  #isDraining = false;
  #isLeaving = false;
  readonly #life = new AbortController(); // aborted when the last results have had their time
  #leaving: ReturnType<typeof setTimeout> | undefined;
  #idleResponses = 0;
  #logged = ""; // why the last poll failed; empty if it got a response

  constructor(
    private readonly transport: Transport,
    private readonly registration: { worker: string; slots: number },
    private readonly attempts: Attempts,
    private readonly log: (line: string) => void,
  ) {
    this.outbox.onWaiting = () => {
      this.#wakeup.wake();
      this.#report();
    };
  }

  /** Called when the server asks the worker to leave. */
  onDrain: () => void = () => undefined;

  /**
   * Poll and report until leave(), and until the outbox is empty then.
   * @throws SchedoError if another process has the worker's name, or if the server refused the first request.
   * @throws Unreachable if the last results could not be reported.
   */
  async run(): Promise<void> {
    try {
      while (!this.#life.signal.aborted) {
        const isLast = this.#isLeaving;
        if (isLast) await this.#reporting;
        else await this.#awaitResults();
        const hasResponse = await this.#poll();
        if (isLast && hasResponse && this.outbox.isEmpty) return;
      }
    } finally {
      clearTimeout(this.#leaving);
    }
    const count = this.outbox.leases.length;
    const lost = count === 0 ? "its end" : count === 1 ? "1 result" : `${count} results`;
    throw new Unreachable(`the worker could not report ${lost} to ${this.transport.url}`);
  }

  /** Take no new work from now on. */
  drain(): void {
    this.#isDraining = true;
    this.#interrupt();
  }

  /** Let run() return when the outbox is empty, or when LEAVE_MS are over; no attempt runs any more. */
  leave(): void {
    this.#isDraining = this.#isLeaving = true;
    this.#leaving ??= setTimeout(() => {
      this.#life.abort();
      this.#interrupt();
    }, LEAVE_MS);
    this.#interrupt();
  }

  #interrupt(): void {
    this.#polling?.abort();
    this.#wakeup.wake();
  }

  /** Give attempts that end at once the time to have their results in the next poll. */
  async #awaitResults(): Promise<void> {
    if (this.attempts.count === 0 || this.outbox.hasWaiting) return;
    await this.#wakeup.wait(this.#freeSlots === 0 ? LINGER_MS : 0, () => this.outbox.hasWaiting);
  }

  get #freeSlots(): number {
    return Math.max(0, this.registration.slots - this.attempts.count);
  }

  /** Send a poll with the messages of the outbox; return whether it got a response. */
  async #poll(): Promise<boolean> {
    const messages = this.outbox.take();
    // The attempt of an accepted offer starts with the response, so the server must not wait.
    const isUrgent = !this.#isInContact || this.#isDraining || messages.some(({ field }) => field === "accept");
    const waitMs = isUrgent ? 0 : this.#heartbeatMs;
    const polling = (this.#polling = new AbortController());
    if (this.#life.signal.aborted) polling.abort();
    const began = Date.now();
    let response: WorkResponse;
    try {
      const exchange = this.#exchange(this.#pollFields(messages, waitMs), messages, waitMs, polling.signal);
      this.#report(); // what is ready while the poll is open need not wait for it
      response = await exchange;
    } catch (error) {
      this.#polling = undefined;
      await this.#pollFailed(messages, error, polling.signal.aborted);
      return false;
    }
    this.#polling = undefined;
    this.#isInContact = this.#hasSpoken = true;
    this.#pollBackoff.noteSuccess();
    if (this.#logged !== "") this.log("the server responds again");
    this.#logged = "";
    const isNews = this.#apply(messages, response);
    const isIdle = !isNews && !isUrgent && Date.now() - began < waitMs / 2;
    await this.#pause(isNews, isIdle);
    return true;
  }

  async #pollFailed(messages: Message[], error: unknown, isInterrupted: boolean): Promise<void> {
    this.#takeBack(messages, error);
    if (isInterrupted || (isUnacceptable(error) && messages.length > 0)) return;
    this.#isInContact = false;
    if (error instanceof SchedoError && this.#isFatal(error)) throw error;
    const { message } = error as Error;
    if (message !== this.#logged) this.log(`${message}; retrying`);
    this.#logged = message;
    const wasLeaving = this.#isLeaving;
    const isDone = (): boolean => this.#life.signal.aborted || (this.#isLeaving && !wasLeaving);
    await this.#wakeup.wait(this.#pollBackoff.next(retryAfterOf(error)), isDone);
  }

  /** Whether trying again cannot help: another process has the name, or no request has succeeded. */
  #isFatal({ status }: SchedoError): boolean {
    return status === 409 || (!this.#hasSpoken && status >= 400 && status < 500 && !BUSY.has(status));
  }

  /** Wait before the next poll: a draining worker sends one a second, and idle responses must not be asked for in a loop. */
  async #pause(isNews: boolean, isIdle: boolean): Promise<void> {
    this.#idleResponses = isIdle ? this.#idleResponses + 1 : 0;
    const doublings = Math.min(this.#idleResponses - IDLE_FREE, 10);
    const idleMs = doublings > 0 ? Math.min(LONGEST_PAUSE_MS, 20 * 2 ** doublings) : 0;
    const pauseMs = this.#isDraining && !isNews ? LONGEST_PAUSE_MS : idleMs;
    if (pauseMs > 0) await this.#wakeup.wait(pauseMs, () => this.outbox.hasWaiting || this.#isLeaving);
  }

  #pollFields(messages: Message[], waitMs: number): object {
    const ended = new Set(messages.filter(({ field }) => field === "results" || field === "reject").map(({ lease }) => lease));
    const known = new Set([...this.attempts.leases, ...this.#offers.keys(), ...this.outbox.leases]);
    return {
      running: [...known].filter((lease) => !ended.has(lease)),
      wait: waitMs / 1000,
      // All slots: some may become free while the poll is open. The server never gives more than are free.
      max_leases: this.#isDraining ? 0 : Math.min(this.registration.slots, LEASES_MAX),
      offers: true,
    };
  }

  /** Send a report, if a poll is open, there is something to say and no other report is in flight. */
  #report(): void {
    const isPolling = this.#isInContact && this.#polling !== undefined && !this.#polling.signal.aborted;
    if (!isPolling || this.#reporting || this.#isLeaving || !this.outbox.hasWaiting) return;
    this.#reporting = this.#sendReport(this.outbox.take()).finally(() => {
      this.#reporting = undefined;
      this.#report();
    });
  }

  async #sendReport(messages: Message[]): Promise<void> {
    try {
      const response = await this.#exchange({ max_leases: 0, wait: 0 }, messages, 0, this.#life.signal);
      this.#reportBackoff.noteSuccess();
      this.#apply(messages, response);
    } catch (error) {
      this.#takeBack(messages, error);
      if (error instanceof SchedoError && BUSY.has(error.status)) {
        const retryMs = this.#reportBackoff.next(error.retryAfterMs ?? 1_000);
        await this.#wakeup.wait(retryMs, () => this.#isLeaving);
      } else if (!isUnacceptable(error)) {
        this.#isInContact = false; // the next request is a poll with `running`: the server may be a new one
        this.#polling?.abort();
      }
    }
  }

  #takeBack(messages: Message[], error: unknown): void {
    if (isUnacceptable(error)) {
      this.log(`the server refused a message: ${error.message}`);
      this.outbox.refuse(messages, error);
    } else {
      this.outbox.putBack(messages);
    }
  }

  async #exchange(fields: object, messages: Message[], heldMs: number, signal?: AbortSignal): Promise<WorkResponse> {
    const draining = this.#isDraining ? { draining: true } : {};
    const head = JSON.stringify({ ...this.registration, ...draining, ...fields });
    const lists = (["results", "progress", "accept", "reject"] as const).map((name) => {
      const entries = messages.filter(({ field }) => field === name).map(({ json }) => json);
      return entries.length > 0 ? `,"${name}":[${entries.join(",")}]` : "";
    });
    const body = `${head.slice(0, -1)}${lists.join("")}}`;
    return readResponse(await this.transport.send("POST", "/v1/work", { body, heldMs, ...(signal && { signal }) }));
  }

  /** Apply the response; return whether it or its request had any news. */
  #apply(messages: Message[], response: WorkResponse): boolean {
    this.outbox.confirm(messages);
    this.#heartbeatMs = Math.min(Math.max(response.heartbeat * 1000, 100), 60_000);
    for (const { lease, detail } of response.refused) this.log(`lease ${lease}: ${detail ?? "its result is refused"}`);
    const gone = new Set([...response.revoked, ...response.refused.map(({ lease }) => lease)]);
    const news = [
      ...messages.filter(({ field }) => field === "accept").map(({ lease }) => this.#begin(lease, gone)),
      ...response.leases.map((lease) => this.#receive(lease)),
      ...response.stop.map(({ lease, reason }) => this.attempts.stop(lease, reason === "timeout" ? "timeout" : "cancel")),
      ...response.revoked.map((lease) => this.attempts.abandon(lease)),
    ];
    if (response.drain) this.onDrain();
    return messages.length > 0 || news.includes(true);
  }

  #receive(lease: Lease): boolean {
    if (!isReadable(lease)) {
      this.log(`ignored a lease that cannot be read: ${JSON.stringify(lease).slice(0, 500)}`);
      return false;
    }
    const text = lease.lease;
    if (!lease.offer) return this.#start(lease);
    if (this.#offers.has(text)) return false;
    if (this.#isDraining || this.#freeSlots <= this.#offers.size) {
      const reason = this.#isDraining ? "draining" : "no free slot";
      this.outbox.add({ field: "reject", lease: text, json: JSON.stringify({ lease: text, reason }) });
    } else {
      this.#offers.set(text, lease);
      this.outbox.add({ field: "accept", lease: text, json: JSON.stringify(text) });
    }
    return true;
  }

  /** Run an accepted offer unless the server has revoked it, or the worker drains by now. */
  #begin(text: string, gone: ReadonlySet<string>): boolean {
    const lease = this.#offers.get(text);
    this.#offers.delete(text);
    return lease !== undefined && !gone.has(text) && this.#start(lease);
  }

  #start(lease: Lease): boolean {
    if (!this.#isDraining) return this.attempts.start(lease);
    const json = JSON.stringify({ lease: lease.lease, outcome: "released" });
    this.outbox.add({ field: "results", lease: lease.lease, json });
    return true;
  }
}

function isUnacceptable(error: unknown): error is SchedoError {
  return error instanceof SchedoError && UNACCEPTABLE.has(error.status);
}

function retryAfterOf(error: unknown): number | undefined {
  if (!(error instanceof SchedoError) || !BUSY.has(error.status)) return undefined;
  return error.retryAfterMs ?? 1_000;
}
