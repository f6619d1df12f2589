// Who uses the page, and what he may do. The server decides; the page only leaves out what it would refuse.
import { signal } from './base.js';

export const me = signal(null); // {name, role}; null until it is known
export const features = signal({}); // of the server: shell, strict, tokens, test_clock

// The operations that change something, by the least role that may carry them out.
// A test compares these lists with schedo/protocol/roles.py.
const OPERATOR = new Set(`
  create_job create_jobs short_schedule update_job cancel_job retry_job run_job
  create_operation cancel_operation undo_operation
  invoke reserve commit_reservation release_reservation
  pause_schedule resume_schedule trigger_schedule pause_queue resume_queue
  cordon_worker uncordon_worker drain_worker pause_server resume_server
`.split(/\s+/).filter(Boolean));
const ADMIN = new Set(`
  put_schedule declare reset_schedule delete_schedule put_expectation delete_expectation
  delete_job update_queue create_backup advance_clock
`.split(/\s+/).filter(Boolean));

// Whether the page should offer an operation, by its name in the API document.
export function may(operation) {
  const role = me.value?.role ?? 'admin'; // before it is known, nothing is hidden
  if (role === 'admin') return true;
  if (ADMIN.has(operation)) return false;
  return OPERATOR.has(operation) ? role === 'operator' : true;
}

// Take over what GET /v1/summary says about the caller and the server.
export function learn(summary) {
  features.value = summary.features;
  me.value = { ...me.peek(), ...summary.caller };
}
