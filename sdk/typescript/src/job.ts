import type { Lease } from "./lease.js";
import { Output, toText } from "./output.js";

/** Why an attempt has to stop. `shutdown`: the worker ends and its grace time is over. */
export type StopReason = "cancel" | "timeout" | "revoked" | "shutdown";

/** Progress of a running attempt; every field is optional. */
export interface Progress {
  /** 0 to 100. */
  percent?: number;
  message?: string;
}

/** The job that a handler runs. */
export class CurrentJob {
  /** The same in all attempts. */
  readonly id: string;
  /** The number of this attempt, from 1. */
  readonly attempt: number;
  readonly task: string;
  readonly queue: string;
  readonly payload: unknown;
  /** The instant of the schedule, or the instant at which the job was due. */
  readonly scheduledFor: Date;
  /** How many earlier attempts failed. */
  readonly failures: number;
  /** How many failures end the job. */
  readonly maxAttempts: number;
  /** When this attempt times out, by the clock of this machine; undefined without a timeout. */
  readonly deadline: Date | undefined;
  /** The lease with all other fields, such as `schedule`, `trigger`, `tags`, `meta` and `traceparent`. */
  readonly lease: Lease;
  /** Aborted when the attempt has to stop. Give it to `fetch`, timers and whatever else takes a signal. */
  readonly signal: AbortSignal;
  readonly #stopping = new AbortController();
  readonly #report: (update: Progress & { log?: string }) => void;
  /** When the attempt began, by `performance.now()`. */
  readonly began = performance.now();
  /** What `log` wrote; kept with the job as its standard output. */
  readonly output = new Output();
  #stopReason: StopReason | undefined;

  constructor(lease: Lease, report: (update: Progress & { log?: string }) => void) {
    this.lease = lease;
    this.id = lease.job;
    this.attempt = lease.attempt;
    this.task = lease.task;
    this.queue = lease.queue;
    this.payload = lease.payload;
    this.scheduledFor = new Date(lease.scheduled_for);
    this.failures = lease.failures ?? 0;
    this.maxAttempts = lease.max_attempts ?? 1;
    this.deadline = lease.timeout === undefined ? undefined : new Date(Date.now() + lease.timeout * 1000);
    this.signal = this.#stopping.signal;
    this.#report = report;
  }

  /** Whether the job has no retry left if this attempt fails. */
  get isLastAttempt(): boolean {
    return this.failures + 1 >= this.maxAttempts;
  }

  /** Why the attempt has to stop; undefined while it may go on. */
  get stopReason(): StopReason | undefined {
    return this.#stopReason;
  }

  /** Report progress. The server gets at most ten reports of an attempt a second; later ones replace earlier ones. */
  progress({ percent, message }: Progress): void {
    this.#report({ ...(percent !== undefined && { percent: Number(percent) }), ...(message !== undefined && { message: toText(message) }) });
  }

  /** Write a line that is shown with the job's progress while it runs, and kept as its output. */
  log(line: string): void {
    const text = toText(line);
    this.output.write(`${text}\n`);
    this.#report({ log: text });
  }

  /** Ask the attempt to stop; return false if it has been asked before. */
  stop(reason: StopReason): boolean {
    if (this.#stopReason !== undefined) return false;
    this.#stopReason = reason;
    this.#stopping.abort(new DOMException(`the attempt has to stop: ${reason}`, "AbortError"));
    return true;
  }
}
