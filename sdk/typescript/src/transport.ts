import { SchedoError, Unreachable, type Problem } from "./errors.js";

/** Where the server is, and who asks. */
export interface Address {
  /** By default `SCHEDO_URL` from the environment, or `http://127.0.0.1:8080`. It may have a path. */
  url?: string;
  /** By default `SCHEDO_TOKEN` from the environment. */
  token?: string;
}

export interface Call {
  /** Sent as JSON, or as it is if it is a text. */
  body?: unknown;
  headers?: Record<string, string>;
  /** How long the server may hold the request open, in milliseconds. */
  heldMs?: number;
  /** Return the body of the response as it is. */
  asText?: boolean;
  signal?: AbortSignal;
}

const RESPONSE_MS = 30_000;

/** Sends single requests to one server. */
export class Transport {
  readonly url: string;
  readonly #headers: Record<string, string>;

  constructor(address: Address, readonly timeoutMs = RESPONSE_MS) {
    const { SCHEDO_URL, SCHEDO_TOKEN } = globalThis.process?.env ?? {};
    this.url = (address.url ?? SCHEDO_URL ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
    if (!/^https?:\/\//.test(this.url)) throw new TypeError(`url: '${this.url}' does not begin with http:// or https://`);
    const token = address.token ?? SCHEDO_TOKEN;
    this.#headers = token ? { authorization: `Bearer ${token}` } : {};
  }

  /**
   * Send a request and return the parsed body of its response.
   * @throws SchedoError if the server refuses it, Unreachable if there is no response.
   */
  async send(method: string, path: string, call: Call = {}): Promise<unknown> {
    const limit = new Limit(this.timeoutMs + (call.heldMs ?? 0), call.signal);
    const headers: Record<string, string> = { ...this.#headers, ...call.headers };
    const request: RequestInit = {
      method,
      headers,
      redirect: "error",
      signal: limit.signal,
    };
    if (call.body !== undefined) {
      headers["content-type"] ??= "application/json";
      request.body = typeof call.body === "string" ? call.body : JSON.stringify(call.body);
    }
    let response: Response;
    let text: string;
    try {
      response = await fetch(this.url + path, request);
      text = await response.text();
    } catch (error) {
      call.signal?.throwIfAborted();
      throw new Unreachable(`no response from ${this.url}: ${explain(error)}`, { cause: error });
    } finally {
      limit.close();
    }
    if (!response.ok) throw refusal(response, text);
    return call.asText ? text : parse(text, this.url);
  }
}

/**
 * Its signal is aborted when the time is over, or with the other signal. `AbortSignal.any` is not used, because it leaves
 * something behind at the other signal for each request, and that of a worker lives as long as the worker.
 */
class Limit {
  readonly #controller = new AbortController();
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #onAbort = (): void => this.#controller.abort(this.other?.reason);

  constructor(ms: number, private readonly other: AbortSignal | undefined) {
    const isOver = (): void => this.#controller.abort(new DOMException("the time for it is over", "TimeoutError"));
    this.#timer = setTimeout(isOver, ms);
    if (other?.aborted) this.#onAbort();
    other?.addEventListener("abort", this.#onAbort);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  close(): void {
    clearTimeout(this.#timer);
    this.other?.removeEventListener("abort", this.#onAbort);
  }
}

function refusal(response: Response, text: string): SchedoError {
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  let problem: Problem = { status: response.status, code: `http-${response.status}`, detail: response.statusText };
  try {
    problem = { ...problem, ...JSON.parse(text) };
  } catch {
    // Something between the client and the server has answered.
  }
  return new SchedoError(problem, Number.isFinite(seconds) ? seconds * 1000 : undefined);
}

function parse(text: string, url: string): unknown {
  try {
    return text === "" ? undefined : JSON.parse(text);
  } catch (error) {
    throw new Unreachable(`the response from ${url} is not JSON`, { cause: error });
  }
}

/** fetch says "fetch failed"; the reason is in its cause, or one for each address of a name such as localhost. */
function explain(error: unknown): string {
  const { message, cause } = error as Error;
  const reasons: unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
  const texts = reasons.map((reason) => (reason instanceof Error ? reason.message : ""));
  return texts.filter(Boolean).join(", ") || message;
}
