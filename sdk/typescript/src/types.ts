// The records of the HTTP API. Fields have the names that they have there; docs/api.md says what each of them means.

/** A number of seconds, or a text such as "90s", "1h30m" or "250ms". */
export type Duration = number | string;

export type JobState =
  | "scheduled" | "blocked" | "queued" | "running" | "retrying"
  | "completed" | "failed" | "cancelled" | "expired";

export interface Retry {
  max_attempts?: number;
  backoff?: "exponential" | "fixed";
  initial?: Duration;
  factor?: number;
  max?: Duration;
  jitter?: number;
  until?: string;
}

export interface Keep {
  completed?: Duration;
  failed?: Duration;
  cancelled?: Duration;
}

export interface OnFailure {
  task: string;
  payload?: unknown;
  queue?: string;
  [field: string]: unknown;
}

export interface Requirements {
  labels?: Record<string, unknown>;
  resources?: Record<string, number | string>;
  worker?: string;
}

/** The options of a job that is submitted. */
export interface JobOptions {
  /** Due after this time; or `run_at`, an instant (RFC 3339, or a Date). By default now. */
  delay?: Duration;
  run_at?: string | Date;
  queue?: string;
  /** -9 to 9; higher runs first. */
  priority?: number;
  /** A policy, the number of attempts, or a preset: `none`, `sidekiq`, `webhook`. */
  retry?: Retry | number | string;
  /** How long one attempt may run. */
  timeout?: Duration;
  expires_in?: Duration;
  expires_at?: string | Date;
  /** At most one job holds the key. */
  unique?: string | { key: string; while?: JobState[]; for?: Duration; on_conflict?: "return" | "reject" | "replace" };
  delivery?: "at_least_once" | "at_most_once";
  tags?: string[];
  meta?: Record<string, unknown>;
  requires?: Requirements;
  prefer?: unknown[];
  on_failure?: OnFailure | string;
  keep?: Keep;
  traceparent?: string;
  tracestate?: string;
}

export interface JobSpec extends JobOptions {
  task: string;
  payload?: unknown;
}

export interface JobError {
  type?: string;
  message?: string;
  exit_code?: number;
  signal?: string;
  http_status?: number;
  traceback?: string;
}

export interface Job<Result = unknown> {
  id: string;
  state: JobState;
  task: string;
  queue: string;
  priority: number;
  payload?: unknown;
  attempt: number;
  max_attempts: number;
  failures: number;
  losses: number;
  created_at: string;
  scheduled_at: string;
  started_at?: string;
  completed_at?: string;
  failed_at?: string;
  cancelled_at?: string;
  expired_at?: string;
  worker?: string;
  schedule?: string;
  scheduled_for?: string;
  unique_key?: string;
  tags?: string[];
  meta?: Record<string, unknown>;
  result?: Result;
  error?: JobError;
  /** Another job holds the unique key; this is that job. */
  conflict?: boolean;
  warnings?: string[];
  [field: string]: unknown;
}

/** Which jobs a list has. */
export interface JobFilter {
  state?: JobState | JobState[];
  queue?: string;
  task?: string;
  schedule?: string;
  tag?: string;
  unique_key?: string;
  /** A text in the task, the payload, the error or a tag. */
  q?: string;
  worker?: string;
  error?: string;
  created_after?: string;
  created_before?: string;
  ended_after?: string;
  ended_before?: string;
  [parameter: string]: unknown;
}

export interface InvokeOptions extends Pick<JobOptions, "queue" | "timeout" | "tags" | "meta" | "requires" | "prefer"> {
  /** How many seconds to wait for the end, at most 300; 0 waits until a worker has accepted the job. By default 30. */
  wait?: number;
  /** What happens if the worker dies while it runs the job. */
  on_loss?: "fail" | "retry_once";
}

/** A schedule as it is put: exactly one of `cron`, `every` and `at`, and the options of its jobs. */
export interface ScheduleSpec extends Omit<JobOptions, "delay" | "run_at" | "unique" | "expires_at"> {
  task: string;
  payload?: unknown;
  cron?: string;
  every?: Duration;
  at?: string | Date;
  tz?: string;
  overlap?: "skip" | "allow" | "buffer_one" | "cancel_other";
  catchup?: "latest" | "all" | "skip";
  jitter?: Duration;
  [field: string]: unknown;
}

export interface Schedule {
  name: string;
  next_fires?: string[];
  warnings?: string[];
  [field: string]: unknown;
}

/** What `stats` counts. */
export interface StatsQuery {
  /** By default by task. */
  by?: "task" | "queue" | "schedule";
  /** By default 7 days ago. */
  since?: string | Date;
  until?: string | Date;
  /** Also in each hour or day. */
  per?: "hour" | "day";
  /** A part of the name; or `exact_name`, the whole of it. */
  name?: string;
  exact_name?: string;
  /** How many names; those with the most ends come first. */
  limit?: number;
}

/** How long something took in microseconds, within `relative_error`. */
export interface Times {
  count: number;
  p50_us: number;
  p90_us: number;
  p99_us: number;
  max_us: number;
}

/** The jobs and attempts that ended in a time. */
export interface Ends {
  completed: number;
  failed: number;
  cancelled: number;
  expired: number;
  /** Attempts that failed or were lost, and after which the job went on. */
  retried: number;
  failed_share: number | null;
  run: Times | null;
  lateness: Times | null;
}

/** What ended in one hour or day. */
export interface StatsPoint extends Ends {
  at: string;
}

export interface Stats {
  by: "task" | "queue" | "schedule";
  since: string;
  until: string;
  per?: "hour" | "day";
  relative_error: number;
  /** All items together, also those left out; and with `per` in each hour or day. */
  total: Ends;
  points?: StatsPoint[];
  items: (Ends & { name: string; points?: StatsPoint[] })[];
  has_more: boolean;
}
