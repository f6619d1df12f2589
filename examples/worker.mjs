// A schedo worker for Node 18 or newer, without dependencies: node worker.mjs [NAME].
// It speaks docs/protocol.md: one job at a time, reported with the next request for work.
const tasks = { increment: async ({ Num }) => ({ Num: Num + 1 }) };

const { SCHEDO_URL: server = "http://127.0.0.1:8080", SCHEDO_TOKEN: token } = process.env;
const me = {
  worker: process.argv[2] ?? `node-${process.pid}`,
  session: `${process.pid}-${Date.now()}`,
  tasks: Object.keys(tasks),
};
const headers = { "content-type": "application/json" };
if (token) headers.authorization = `Bearer ${token}`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function say(fields) { // again and again until there is an answer
  for (;;) {
    const request = { method: "POST", headers, body: JSON.stringify({ ...me, ...fields }) };
    try {
      const answer = await fetch(`${server}/v1/work`, request);
      if (answer.ok) return await answer.json();
      console.error(answer.status, await answer.text());
      if ([401, 403, 409].includes(answer.status)) process.exit(1); // not welcome, or replaced
      if ([400, 413, 422].includes(answer.status)) fields.results = fields.results?.map(refused);
    } catch (error) {
      console.error(error.message);
    }
    await sleep(1000);
  }
}

const refused = ({ lease }) => ({ // a result that the server will never take
  lease, outcome: "failed", retryable: false,
  error: { type: "result-refused", message: "the server did not take the result" },
});

async function run({ lease, task, payload }) {
  try {
    return { lease, outcome: "completed", result: await tasks[task](payload) };
  } catch ({ name, message }) {
    return { lease, outcome: "failed", error: { type: name, message } };
  }
}

(async () => { // signs of life, also while a job takes long
  for (;;) {
    await sleep(10_000);
    await say({ max_leases: 0 });
  }
})();

for (let results = []; ; ) {
  const { leases } = await say({ running: [], results, wait: 20 });
  results = [];
  for (const given of leases) results.push(await run(given));
}
