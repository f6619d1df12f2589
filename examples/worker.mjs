// A schedo worker for Node 18 or newer, without dependencies: node worker.mjs [NAME].
// It implements docs/protocol.md with one job at a time; each poll reports the previous result.
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

async function send(fields) { // repeats the request until it gets a response
  for (;;) {
    const signal = AbortSignal.timeout(60_000); // the server may be lost without a word
    const request = { method: "POST", headers, body: JSON.stringify({ ...me, ...fields }), signal };
    try {
      const answer = await fetch(`${server}/v1/work`, request);
      if (answer.ok) return await answer.json();
      console.error(answer.status, await answer.text());
      if ([401, 403, 409].includes(answer.status)) process.exit(1); // wrong token, or replaced
      if ([400, 413, 422].includes(answer.status)) fields.results = fields.results?.map(refused);
    } catch (error) {
      console.error(error.message, error.cause?.code ?? error.cause ?? ""); // fetch has the reason there
    }
    await sleep(1000);
  }
}

const refused = ({ lease }) => ({ // in place of a result that the server will never accept
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

(async () => { // heartbeats, so that a long job does not look like a dead worker
  for (;;) {
    await sleep(10_000);
    await send({ max_leases: 0 });
  }
})();

for (let results = []; ; ) {
  const { leases } = await send({ running: [], results, wait: 20 });
  results = [];
  for (const given of leases) results.push(await run(given));
}
