import { Backoff } from "./backoff.js";
import { JobFailed, SchedoError, Unreachable } from "./errors.js";
import { Transport, type Address, type Call } from "./transport.js";
import type { InvokeOptions, Job, JobFilter, JobOptions, JobSpec, Schedule, ScheduleSpec, Stats, StatsQuery } from "./types.js";

export interface ClientOptions extends Address {
  /** How often a request is repeated that got no response, or 429 or 503. By default 5. */
  retries?: number;
  /** How many seconds a response may take, beyond the time that the request asks the server to wait. By default 30. */
  timeout?: number;
}

const HELD_S = 60; // one request waits so long; a longer wait takes several
const WAIT_PAUSE_MS = 500; // a server that stops ends each wait at once
const ENDED = new Set(["completed", "failed", "cancelled", "expired"]);
const BUSY = new Set([429, 503]);

/**
 * A client of a schedo server. A request that fails without a response, or because the server is busy or restarts, is
 * repeated where that is safe: submits carry an `Idempotency-Key`, so a repeated one makes no second job.
 */
export class Client {
  readonly #transport: Transport;
  readonly #retries: number;

  constructor({ retries = 5, timeout = 30, ...address }: ClientOptions = {}) {
    this.#transport = new Transport(address, timeout * 1000);
    this.#retries = retries;
  }

  /** Submit a job. When the promise is fulfilled, the job is on the server's disk. */
  async submit(task: string, payload?: unknown, options: JobOptions = {}): Promise<Job> {
    return this.#post("/v1/jobs", { task, payload, ...options }, { headers: idempotencyKey() });
  }

  /** Submit up to 1,000 jobs in one commit. At the position of a job that is refused is its error. */
  async submitMany(jobs: JobSpec[]): Promise<(Job | SchedoError)[]> {
    const { items } = await this.#post<{ items: { job?: Job; problem?: SchedoError["problem"] }[] }>("/v1/jobs:batch", jobs, {
      headers: idempotencyKey(),
    });
    return items.map(({ job, problem }) => job ?? new SchedoError(problem ?? { status: 500, code: "internal" }));
  }

  async get(id: string): Promise<Job> {
    return this.#get(`/v1/jobs/${encodeURIComponent(id)}`);
  }

  /** Wait until the job has ended, or at most so many seconds; return the job as it is then. */
  async wait(id: string, seconds = 300): Promise<Job> {
    const path = `/v1/jobs/${encodeURIComponent(id)}/wait`;
    const end = Date.now() + seconds * 1000;
    for (;;) {
      const began = Date.now();
      const left = Math.max(0, Math.min(HELD_S, (end - began) / 1000));
      const job = await this.#get<Job>(`${path}?timeout=${left.toFixed(3)}`, { heldMs: left * 1000 });
      if (ENDED.has(job.state) || Date.now() >= end) return job;
      if (Date.now() - began < left * 500) await pause(Math.min(WAIT_PAUSE_MS, end - Date.now()));
    }
  }

  /**
   * Wait for the job and return its result.
   * @throws JobFailed if the job did not complete.
   */
  async result<Result = unknown>(id: string, seconds = 300): Promise<Result> {
    const job = await this.wait(id, seconds);
    if (!ENDED.has(job.state)) throw new Unreachable(`job ${id} has not ended within ${seconds} s; it is ${job.state}`);
    if (job.state !== "completed") throw new JobFailed(job);
    return job.result as Result;
  }

  /** Cancel a waiting job, or ask a running one to stop. */
  async cancel(id: string): Promise<Job> {
    return this.#post(`/v1/jobs/${encodeURIComponent(id)}:cancel`);
  }

  /** Run a failed, cancelled or expired job again. */
  async retry(id: string): Promise<Job> {
    return this.#post(`/v1/jobs/${encodeURIComponent(id)}:retry`);
  }

  /** Make a job that waits for its time due now. */
  async runNow(id: string): Promise<Job> {
    return this.#post(`/v1/jobs/${encodeURIComponent(id)}:run`);
  }

  /** The jobs that match, newest first; pages are read as they are needed. */
  async *list(filter: JobFilter = {}): AsyncGenerator<Job> {
    let cursor: string | undefined;
    do {
      const page = await this.#get<{ items: Job[]; next_cursor?: string }>(`/v1/jobs?${toQuery({ ...filter, cursor })}`);
      yield* page.items;
      cursor = page.next_cursor;
    } while (cursor !== undefined);
  }

  /** What one of the job's streams had: `stdout`, `stderr` or `body`; the latest attempt's. */
  async output(id: string, stream = "stdout"): Promise<string> {
    return this.#get(`/v1/jobs/${encodeURIComponent(id)}/output?stream=${stream}`, { asText: true });
  }

  /**
   * Run a job on a worker right now and return it as it is after `wait`; it is not queued.
   * @throws SchedoError with the code `no-capacity` if no worker has room, `invocation-failed` if the job failed.
   */
  async invoke<Result = unknown>(task: string, payload?: unknown, options: InvokeOptions = {}): Promise<Job<Result>> {
    const wait = options.wait ?? 30;
    return this.#once("POST", "/v1/invoke", { body: { task, payload, ...options, wait }, heldMs: wait * 1000 });
  }

  /** Create or replace a schedule. */
  async putSchedule(name: string, schedule: ScheduleSpec): Promise<Schedule> {
    return this.request("PUT", `/v1/schedules/${encodeURIComponent(name)}`, { body: schedule });
  }

  async getSchedule(name: string): Promise<Schedule> {
    return this.#get(`/v1/schedules/${encodeURIComponent(name)}`);
  }

  async deleteSchedule(name: string): Promise<void> {
    await this.request("DELETE", `/v1/schedules/${encodeURIComponent(name)}`);
  }

  /** What ended by task, queue or schedule: counts, run times and lateness; of the last 7 days unless the query says otherwise. */
  async stats(query: StatsQuery = {}): Promise<Stats> {
    return this.#get(`/v1/stats?${toQuery(query)}`);
  }

  /**
   * Send any request of the HTTP API (docs/api.md) that may be carried out twice, and return the parsed response.
   * It is repeated if it gets no response, or if the server is busy or restarts.
   */
  async request<T = unknown>(method: string, path: string, call: Call = {}): Promise<T> {
    const backoff = new Backoff();
    for (let left = this.#retries; ; left -= 1) {
      try {
        return await this.#once<T>(method, path, call);
      } catch (error) {
        if (left <= 0 || !isPassing(error) || call.signal?.aborted) throw error;
        await pause(backoff.next(error instanceof SchedoError ? error.retryAfterMs : undefined));
      }
    }
  }

  #get<T>(path: string, call: Call = {}): Promise<T> {
    return this.request("GET", path, call);
  }

  #post<T>(path: string, body?: unknown, call: Call = {}): Promise<T> {
    return this.request("POST", path, body === undefined ? call : { ...call, body });
  }

  async #once<T>(method: string, path: string, call: Call): Promise<T> {
    return (await this.#transport.send(method, path, call)) as T;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The parameters that are defined, as the query of a URL. */
function toQuery(parameters: object): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) query.set(name, value instanceof Date ? value.toISOString() : String(value));
  }
  return query;
}

function idempotencyKey(): Record<string, string> {
  return { "idempotency-key": globalThis.crypto.randomUUID() };
}

/** Whether the same request may succeed later: it has not been carried out, or a repetition changes nothing. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof SchedoError)) return error instanceof Unreachable;
  return error.code === "idempotency-in-progress" || (BUSY.has(error.status) && error.code !== "no-capacity");
}
