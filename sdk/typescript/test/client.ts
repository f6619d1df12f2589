// Uses the client in many ways and prints what came of it as one JSON object, for tests/sdk/contract_server.py.
import { Client, JobFailed, SchedoError, type Job } from "../dist/index.js";

const client = new Client();
const shell = (command: string, options = {}) => client.submit("shell", { command }, options);
const codeOf = (error: unknown): string => (error instanceof SchedoError ? error.code : String(error));

const hello = await shell("echo hello");
const failing = await shell("exit 3");
const missing = await client.get("0000000000000").catch((error: SchedoError) => error);
const batch = await client.submitMany([{ task: "shell", payload: { command: "true" }, delay: "1h" }, { task: "not a name" }]);
const first = await shell("true", { unique: "only", delay: 3600 });
const second = await shell("true", { unique: "only", delay: 3600 });
const listed: Job[] = [];

const told = {
  completed: await client.result(hello.id),
  output: await client.output(hello.id),
  failed: await client.result(failing.id).catch((error: JobFailed) => `${error.job.state} ${error.job.error?.type}`),
  "not found": missing instanceof SchedoError ? [missing.status, missing.code] : missing,
  batch: batch.map((item) => (item instanceof SchedoError ? item.code : item.state)),
  "same key": first.id === second.id && second.conflict === true,
  cancelled: (await client.cancel(first.id)).state,
  listed: 0,
  retried: (await client.retry(failing.id)).state,
  invoked: (await client.invoke("shell", { command: "true" })).state,
  "no capacity": await client.invoke("fly").then((job) => job.state, codeOf),
  schedule: (await client.putSchedule("nightly", { cron: "0 3 * * *", task: "shell", payload: { command: "true" } }))["cron"],
};
for await (const job of client.list({ state: ["completed", "cancelled"], task: "shell", limit: 1 })) listed.push(job);
told.listed = listed.filter(({ id }) => id === hello.id || id === first.id).length;
await client.deleteSchedule("nightly");
const stats = await client.stats({ by: "queue", since: new Date(Date.now() - 3_600_000), per: "hour", exact_name: "default" });
const [queue] = stats.items;
console.log(JSON.stringify({ ...told, stats: [stats.by, queue?.name, queue?.cancelled, queue?.points?.length === 1 && stats.points?.length === 1] }));
