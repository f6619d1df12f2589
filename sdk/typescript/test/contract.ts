// A worker that a test leads: it reads commands from stdin and writes events to stdout, a JSON object on each line.
// tests/sdk/process_worker.py is the other side.
import { createInterface } from "node:readline";
import { Discard, Snooze, Worker, type CurrentJob } from "../dist/index.js";

interface Command {
  do: string;
  lease: string;
  value?: unknown;
  update: { percent?: number; message?: string; log?: string };
}

interface Running {
  job: CurrentJob;
  resolve: (value: unknown) => void;
  reject: (error: unknown) => void;
}

const running = new Map<string, Running>();
const tell = (event: object): void => void process.stdout.write(`${JSON.stringify(event)}\n`);

const worker = new Worker({ name: "w1", slots: 2, grace: 60 }).task("work", (payload, job) => {
  const { lease } = job.lease;
  job.signal.addEventListener("abort", () => {
    tell({ event: "stopped", lease, reason: job.stopReason });
    running.get(lease)?.reject(new Error("it has stopped"));
  });
  return new Promise((resolve, reject) => {
    running.set(lease, { job, resolve, reject });
    tell({ event: "called", lease, payload });
  });
});

const errors: Record<string, (value: any) => Error> = {
  fail: (message) => new Error(message),
  snooze: (delay) => new Snooze(delay),
  discard: (reason) => new Discard(reason),
};

const thrown: Record<string, unknown> = {
  bare: Object.create(null),
  message: Object.assign(new Error(), { message: { page: 4 } }),
  name: Object.assign(new Error(), { name: 7 }),
  stack: Object.assign(new Error(), { stack: ["line 1"] }),
};

function obey({ do: what, lease, value, update }: Command): void {
  const call = running.get(lease);
  if (what === "sync") setTimeout(() => tell({ event: "synced" }), 0);
  else if (what === "stop") worker.stop();
  else if (what === "stop_now") worker.stopNow();
  else if (what === "complete") call?.resolve(value);
  else if (what === "progress") update.log === undefined ? call?.job.progress(update) : call?.job.log(update.log);
  else if (what === "throw") call?.reject(thrown[value as string]);
  else call?.reject(errors[what]!(value));
}

createInterface({ input: process.stdin })
  .on("line", (line) => obey(JSON.parse(line)))
  .on("close", () => process.exit(0));

worker.run().then(
  () => tell({ event: "ended", error: "" }),
  (error: Error) => tell({ event: "ended", error: error.message }),
);
