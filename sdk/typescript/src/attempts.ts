import { Discard, Snooze } from "./errors.js";
import { CurrentJob, type StopReason } from "./job.js";
import type { Lease } from "./lease.js";
import type { Message } from "./outbox.js";
import { ProgressThrottle, type Update } from "./progress.js";
import { toSafeText, toText } from "./output.js";

/** Runs a job; what it returns is the job's result. */
export type Handler<Payload = any> = (payload: Payload, job: CurrentJob) => unknown;

/** What runs around each attempt: `next` runs the handler and returns what it returns. */
export type Around = (job: CurrentJob, next: () => Promise<unknown>) => Promise<unknown>;

const TEXT_CHARACTERS_MAX = 8_000;
const STOP_GRACE_MS = 5_000; // for a handler to end after its stop; later its slot is used again

/** The attempts that run in this process. `send` gets their results, `sendProgress` their progress. */
export class Attempts {
  readonly #running = new Map<string, CurrentJob>();
  readonly #throttle: ProgressThrottle;

  constructor(
    private readonly handlers: ReadonlyMap<string, Handler>,
    private readonly around: readonly Around[],
    private readonly send: (message: Message) => void,
    sendProgress: (lease: string, update: Update) => void,
  ) {
    this.#throttle = new ProgressThrottle(sendProgress);
  }

  /** Called when an attempt no longer runs. */
  onEnd: () => void = () => undefined;

  get count(): number {
    return this.#running.size;
  }

  get leases(): string[] {
    return [...this.#running.keys()];
  }

  /** Start the attempt; return false if it runs already. */
  start(lease: Lease): boolean {
    if (this.#running.has(lease.lease)) return false;
    const handler = this.handlers.get(lease.task);
    if (handler === undefined) {
      this.#end(lease.lease, failure("unknown-task", `this worker has no task '${lease.task}'`, { retryable: false }));
      return true;
    }
    const job = new CurrentJob(lease, (update) => {
      if (this.#running.get(lease.lease) === job) this.#throttle.add(lease.lease, update);
    });
    this.#running.set(lease.lease, job);
    void this.#run(job, handler);
    return true;
  }

  /** Ask the attempt to stop; return false if it does not run or has been asked before. */
  stop(lease: string, reason: StopReason): boolean {
    const job = this.#running.get(lease);
    if (job === undefined || !job.stop(reason)) return false;
    const timer = setTimeout(() => this.#finish(job, { outcome: "stopped" }), STOP_GRACE_MS);
    (timer as { unref?: () => void }).unref?.();
    return true;
  }

  /** Stop the attempt and report nothing; return whether it ran. */
  abandon(lease: string): boolean {
    const job = this.#running.get(lease);
    if (job === undefined) return false;
    this.#forget(job);
    job.stop("revoked");
    this.onEnd();
    return true;
  }

  /** Report every attempt as released, and stop it: another worker runs it again. */
  release(): void {
    for (const job of [...this.#running.values()]) {
      this.#finish(job, { outcome: "released" });
      job.stop("shutdown");
    }
  }

  /** Stop every attempt and report nothing; another process has its job, or will have it. */
  close(): void {
    for (const lease of this.leases) this.abandon(lease);
    this.#throttle.close();
  }

  async #run(job: CurrentJob, handler: Handler): Promise<void> {
    let result: object;
    try {
      result = toResult(await this.#call(job, handler));
    } catch (error) {
      result = job.stopReason === undefined ? toFailure(error) : { outcome: "stopped" };
    }
    this.#finish(job, result);
  }

  async #call(job: CurrentJob, handler: Handler): Promise<unknown> {
    let call = async (): Promise<unknown> => handler(job.payload, job);
    for (const around of [...this.around].reverse()) {
      const inner = call;
      call = () => around(job, inner);
    }
    return call();
  }

  #finish(job: CurrentJob, result: object): void {
    if (this.#running.get(job.lease.lease) !== job) return; // abandoned, or reported before
    this.#forget(job);
    const output = job.output.render();
    const ran = (performance.now() - job.began) / 1000;
    this.#end(job.lease.lease, { ...result, ran, ...(output && { output: [output] }) });
  }

  #forget(job: CurrentJob): void {
    this.#running.delete(job.lease.lease);
    this.#throttle.forget(job.lease.lease);
  }

  #end(lease: string, result: object): void {
    let json: string;
    try {
      json = JSON.stringify({ lease, ...result });
    } catch (error) { // a circular value or a BigInt
      json = JSON.stringify({ lease, ...failure("result-not-json", String(error), { retryable: false }) });
    }
    this.send({ field: "results", lease, json });
    this.onEnd();
  }
}

function toResult(value: unknown): object {
  if (value instanceof Snooze || value instanceof Discard) return toFailure(value);
  return { outcome: "completed", result: value };
}

function toFailure(error: unknown): object {
  if (error instanceof Snooze) return { outcome: "snoozed", delay: error.delay };
  if (!(error instanceof Error)) return failure("Error", error);
  const traceback = error.stack === undefined ? {} : { traceback: cut(error.stack) };
  return failure(error.name, error.message, error instanceof Discard ? { retryable: false } : {}, traceback);
}

function failure(type: unknown, message: unknown, options: object = {}, more: object = {}): object {
  return { outcome: "failed", ...options, error: { type: cut(type), message: cut(message), ...more } };
}

function cut(value: unknown): string {
  return toSafeText(toText(value).slice(0, TEXT_CHARACTERS_MAX));
}
