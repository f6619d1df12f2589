// Who uses the page, and what he may do, as GET /v1/me says. The server decides; the page only leaves out what it would refuse.
import { get, isLoggedOut } from './api.js';
import { computed, signal } from './base.js';

export const me = signal(null); // {access, name, role, operations, queues, tasks, hides_payloads}; null until it is known
export const features = signal({}); // of the server: shell, strict, tokens, test_clock

const operations = computed(() => new Set(me.value?.operations));

// Read it again; while the server cannot be reached, what is known stays.
export async function loadMe() {
  try {
    me.value = await get('/v1/me');
    if (me.value.access === 'none') isLoggedOut.value = true;
  } catch {
    // The stream tells when the server is back; then it is asked again.
  }
}

const covers = (names, name) => !names || names.includes(name);

// Whether the page should offer an operation, by its name in the API document; nothing is offered before it is known.
// on: what it is carried out on, {queue, task}: a token can be for some queues and tasks only, and a whole queue has jobs of all tasks.
export function may(operation, on) {
  if (!operations.value.has(operation)) return false;
  return !on || (covers(me.value.queues, on.queue) && covers(me.value.tasks, on.task));
}
