/** What went wrong, as the server says it (RFC 9457). Further members depend on `code`. */
export interface Problem {
  type?: string;
  title?: string;
  status: number;
  /** Stable; docs/api.md lists all codes. */
  code: string;
  detail?: string;
  request_id?: string;
  errors?: { pointer?: string; parameter?: string; detail: string }[];
  [member: string]: unknown;
}

/** The server refused a request. */
export class SchedoError extends Error {
  override readonly name: string = "SchedoError";

  constructor(readonly problem: Problem, readonly retryAfterMs?: number) {
    super(problem.detail ?? problem.code);
  }

  /** The HTTP status. */
  get status(): number {
    return this.problem.status;
  }

  /** The stable code of the error, such as `not-found`. */
  get code(): string {
    return this.problem.code;
  }
}

/** There was no response: the request may or may not have been carried out. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
}

/** A job did not complete: it failed, was cancelled or has expired. */
export class JobFailed extends Error {
  override readonly name = "JobFailed";

  constructor(readonly job: { id: string; task: string; state: string; error?: { type?: string; message?: string } }) {
    const { type, message } = job.error ?? {};
    super(`job ${job.id} of task ${job.task} ${job.state}${type ? `: ${type}: ${message ?? ""}` : ""}`);
  }
}

/** A handler throws or returns this to run the job again after the delay. The attempt is not counted. */
export class Snooze extends Error {
  override readonly name = "Snooze";

  /** @param delay a number of seconds, or a text such as "5m" */
  constructor(readonly delay: number | string) {
    super(`snoozed for ${delay}`);
  }
}

/** A handler throws or returns this to fail the job without further retries. */
export class Discard extends Error {
  override readonly name = "Discard";
}
