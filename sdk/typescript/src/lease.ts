/** The right to run one attempt of a job, as the server gives it (docs/protocol.md). */
export interface Lease {
  lease: string;
  job: string;
  attempt: number;
  task: string;
  queue: string;
  payload: unknown;
  scheduled_for: string;
  trigger: string;
  timeout?: number;
  schedule?: string;
  failures?: number;
  max_attempts?: number;
  missed_count?: number;
  tags?: string[];
  meta?: Record<string, unknown>;
  traceparent?: string;
  tracestate?: string;
  at_most_once?: boolean;
  suspect?: boolean;
  offer?: boolean;
}

/** What the server answers to a worker. */
export interface WorkResponse {
  leases: Lease[];
  stop: { lease: string; reason: string }[];
  revoked: string[];
  refused: { lease: string; detail?: string }[];
  heartbeat: number;
  drain: boolean;
}

/** Return the response with the fields that this worker needs, or throw TypeError. */
export function readResponse(body: unknown): WorkResponse {
  const response = body as Partial<WorkResponse> | null | undefined;
  const lists = [response?.leases, response?.stop, response?.revoked, response?.refused];
  if (!lists.every(Array.isArray) || typeof response?.heartbeat !== "number") {
    throw new TypeError("the response is not one of the worker protocol");
  }
  return response as WorkResponse;
}

/** Whether the lease has what an attempt needs. */
export function isReadable(lease: Lease): boolean {
  return (
    /^[0-9A-Z]{13}\.\d+\.\d+$/.test(lease.lease) &&
    typeof lease.task === "string" &&
    !Number.isNaN(Date.parse(lease.scheduled_for))
  );
}
