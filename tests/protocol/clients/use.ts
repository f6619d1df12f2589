// What a program in TypeScript writes with the types that openapi-typescript makes.
import type { components, operations } from "./schedo";

type Schemas = components["schemas"];
type Answer<Name extends keyof operations, Status extends keyof operations[Name]["responses"]> =
  operations[Name]["responses"][Status] extends { content: { "application/json": infer Body } } ? Body : never;

export const job: Schemas["JobRequest"] = {
  task: "send_email",
  payload: { to: ["ada@example.org"], order: 7 },
  meta: { order: 7 },
  retry: { max_attempts: 3 },
  keep: { completed: "1h" },
  requires: { labels: { gpu: ["a100", "h100"] }, resources: { cpu: 2 } },
  prefer: [{ zone: "lhr" }, {}],
};
export const schedule: Schemas["ScheduleRequest"] = {
  task: "report", cron: "0 3 * * *", expect: { within: "1h", on_miss: "alert" },
};
export const operation: Schemas["BulkRequest"] = { action: "retry", where: { state: "failed" }, dry_run: true };

export function describe(made: Answer<"create_job", 201>, many: Answer<"create_job", 207>): string {
  return `${made.id} is ${made.state}; ${many.items.map((item) => item.status).join()}`;
}

// @ts-expect-error a job has a task
export const taskless: Schemas["JobRequest"] = { payload: {} };
// @ts-expect-error there is no such field
export const misspelt: Schemas["JobRequest"] = { task: "report", dealy: "5s" };
