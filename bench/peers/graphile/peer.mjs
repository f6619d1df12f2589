// graphile-worker on PostgreSQL; ../README.md has its settings, ../work.py the work.
import { createRequire } from "node:module";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const CONCURRENCY = 10;
const LOCAL_QUEUE = 500;
const versions = createRequire(import.meta.url);
const work = JSON.parse(process.argv[2]);
const connectionString = process.env.PEERS_DSN;
const logger = new Logger(() => () => {});
const seconds = () => performance.now() / 1000;

const runs = new Uint8Array(work.count);
let left = work.count;
let finish;
const done = new Promise((resolve) => (finish = resolve));

async function ran(payload) {
  runs[payload.n] += 1;
  left -= 1;
  if (left === 0) finish();
}

const taskList = {};
for (let each = 0; each < work.tasks; each++) taskList[`task${each}`] = ran;

const start = () =>
  run({
    connectionString,
    logger,
    taskList,
    concurrency: CONCURRENCY,
    noHandleSignals: true,
    preset: { worker: { localQueue: { size: LOCAL_QUEUE }, completeJobBatchDelay: 0 } },
  });

async function submit(utils) {
  const filler = "x".repeat(Math.max(0, work.payload_bytes - 20));
  for (let first = 0; first < work.count; first += work.batch) {
    const jobs = [];
    for (let n = first; n < Math.min(first + work.batch, work.count); n++)
      jobs.push({
        identifier: `task${n % work.tasks}`,
        payload: filler ? { n, filler } : { n },
        ...(work.keyed && { jobKey: `key-${n}` }),
      });
    await utils.addJobs(jobs);
  }
}

const utils = await makeWorkerUtils({ connectionString, logger });
await utils.migrate();
let runner = work.mode === "stream" ? await start() : null;
let began = seconds();
const before = process.cpuUsage();
await submit(utils);
const submit_s = seconds() - began;
if (!runner) {
  began = seconds();
  runner = await start();
}
await done;
await utils.withPgClient(async (client) => {
  const waiting = "select count(*)::int as n from graphile_worker._private_jobs";
  while ((await client.query(waiting)).rows[0].n) await new Promise((next) => setTimeout(next, 5));
});
const total_s = seconds() - began;
const spent = process.cpuUsage(before);
const cpu_s = { program: (spent.user + spent.system) / 1e6 };
await runner.stop();
await utils.release();

const wrong = runs.filter((each) => each !== 1).length;
if (wrong) throw new Error(`${wrong} jobs did not run exactly once`);
const version = versions("graphile-worker/package.json").version;
const about = `graphile-worker ${version}, concurrency ${CONCURRENCY}, localQueue ${LOCAL_QUEUE}`;
console.log(JSON.stringify({ submit_s, total_s, about, cpu_s }));
