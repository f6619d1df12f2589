export { Client, type ClientOptions } from "./client.js";
export { Discard, JobFailed, SchedoError, Snooze, Unreachable, type Problem } from "./errors.js";
export type { Around, Handler } from "./attempts.js";
export type { CurrentJob, Progress, StopReason } from "./job.js";
export type { Lease } from "./lease.js";
export { Worker, type TaskDefaults, type WorkerOptions } from "./worker.js";
export type * from "./types.js";
