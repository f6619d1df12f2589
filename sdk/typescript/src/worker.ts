import { Attempts, type Around, type Handler } from "./attempts.js";
import { Session, WORK_MS } from "./session.js";
import { Transport, type Address } from "./transport.js";
import type { Keep, OnFailure, Retry } from "./types.js";

export interface WorkerOptions extends Address {
  /** A letter or digit, then up to 127 letters, digits, `.`, `_`, `-`. By default made of the host and the process. */
  name?: string;
  /** How many attempts run at the same time, 1 to 10000. By default 10. */
  slots?: number;
  /** The queues from which the worker takes jobs; by default any. */
  queues?: string[];
  /** Properties that jobs can require, such as `{ region: "eu" }`. */
  labels?: Record<string, string | number | boolean>;
  /** Amounts that jobs can require, such as `{ cpu: 4, memory: "8GiB" }`. */
  resources?: Record<string, number | string>;
  /** The version of the worker's code; the server only displays it. */
  version?: string;
  /** How many seconds running attempts have to end after stop(); then other workers run them again. By default 25, because Kubernetes kills a container 30 s after its SIGTERM. */
  grace?: number;
  /** How long the worker may be silent before the server treats it as lost: "5s" to "1h". By default 30 s. */
  sessionTimeout?: number | string;
  /** Gets what the worker has to say. By default it goes to stderr. */
  log?: (line: string) => void;
}

/** Options of the task's jobs that do not set them. */
export interface TaskDefaults {
  retry?: Retry | number | string;
  timeout?: number | string;
  delivery?: "at_least_once" | "at_most_once";
  on_failure?: OnFailure | string;
  keep?: Keep;
}

/** Runs jobs in this program. */
export class Worker {
  readonly name: string;
  readonly #options: WorkerOptions;
  readonly #transport: Transport;
  readonly #handlers = new Map<string, Handler>();
  readonly #defaults: Record<string, TaskDefaults> = {};
  readonly #around: Around[] = [];
  readonly #log: (line: string) => void;
  #stop: (() => void) | undefined;
  #stopNow: (() => void) | undefined;
  #isStopped = false;

  constructor(options: WorkerOptions = {}) {
    this.#options = options;
    this.#transport = new Transport(options, WORK_MS);
    this.name = options.name ?? makeName();
    this.#log = options.log ?? ((line) => console.error(`schedo worker ${this.name}: ${line}`));
  }

  /**
   * Declare how this worker runs a task. A handler gets the payload and the job, and returns the result: any JSON.
   * What it throws fails the attempt; the job is then retried by its policy. Call it before run().
   */
  task<Payload = unknown>(name: string, handler: Handler<Payload>, defaults?: TaskDefaults): this {
    if (this.#handlers.has(name)) throw new TypeError(`task '${name}' is declared twice`);
    this.#handlers.set(name, handler);
    if (defaults !== undefined) this.#defaults[name] = defaults;
    return this;
  }

  /** Run a function around each attempt, such as for traces or measurements. The first one declared is the outermost. */
  around(hook: Around): this {
    this.#around.push(hook);
    return this;
  }

  /**
   * Run jobs until stop(), until the server asks the worker to leave, or until SIGTERM or SIGINT; a second signal
   * ends it without waiting for attempts. Then the running attempts end, and their results reach the server.
   * @throws SchedoError if the server refuses the worker, or if another process has taken its name.
   * @throws Unreachable if the last results could not be reported.
   */
  async run({ signals = true }: { signals?: boolean } = {}): Promise<void> {
    const attempts = new Attempts(
      this.#handlers,
      this.#around,
      (message) => session.outbox.add(message),
      (lease, update) => session.outbox.addProgress(lease, update),
    );
    const session = new Session(this.#transport, this.#registration(), attempts, this.#log);
    let grace: ReturnType<typeof setTimeout> | undefined;
    this.#stopNow = () => attempts.release();
    this.#stop = () => {
      if (grace !== undefined) return;
      grace = setTimeout(() => attempts.release(), (this.#options.grace ?? 25) * 1000);
      session.drain();
      attempts.onEnd = () => {
        if (attempts.count === 0) session.leave();
      };
      attempts.onEnd();
    };
    session.onDrain = this.#stop;
    const unlisten = signals ? this.#listen() : () => undefined;
    if (this.#isStopped) this.#stop();
    try {
      await session.run();
    } finally {
      unlisten();
      clearTimeout(grace);
      attempts.close();
      this.#stop = this.#stopNow = undefined;
    }
  }

  /** Take no more jobs; run() returns when the attempts that run have ended, or when `grace` is over. */
  stop(): void {
    this.#isStopped = true;
    this.#stop?.();
  }

  /** Give the running attempts back, so that other workers run them, and let run() return. */
  stopNow(): void {
    this.stop();
    this.#stopNow?.();
  }

  #registration() {
    const { slots = 10, queues, labels, resources, version, sessionTimeout } = this.#options;
    return {
      worker: this.name,
      protocol: 1,
      session: globalThis.crypto.randomUUID(),
      tasks: [...this.#handlers.keys()],
      slots,
      ...(queues && { queues }),
      ...(labels && { labels }),
      ...(resources && { resources }),
      ...(version && { version }),
      ...(sessionTimeout && { session_timeout: sessionTimeout }),
      ...(Object.keys(this.#defaults).length > 0 && { task_defaults: this.#defaults }),
    };
  }

  #listen(): () => void {
    const { process } = globalThis;
    const onSignal = (): void => (this.#isStopped ? this.stopNow() : this.stop());
    for (const name of ["SIGTERM", "SIGINT"] as const) process?.on(name, onSignal);
    return () => {
      for (const name of ["SIGTERM", "SIGINT"] as const) process?.off(name, onSignal);
    };
  }
}

function makeName(): string {
  const { process } = globalThis;
  // A shell has HOSTNAME but does not export it. Node below 20.16 has no other way to it than an import of Node.
  const known = process?.env["HOSTNAME"] ?? process?.getBuiltinModule?.("node:os").hostname();
  const host = (known ?? "worker").replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  const number = process?.pid ?? globalThis.crypto.randomUUID().slice(0, 8);
  return `${host.slice(0, 100) || "worker"}-${number}`;
}
