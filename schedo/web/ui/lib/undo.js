// The way back from a change, which must not take back what another has done since.
import { get } from './api.js';

export const CHANGED = 'another has changed it meanwhile';

// What a path of the API has now; null: nothing.
const readNow = (path) => get(path).catch((error) => {
  if (error.status === 404) return null;
  throw error;
});

// Carry out an undo unless another has changed what is at the path. left: what the change has left there; null: nothing.
export async function undoOwn(path, left, undo) {
  const found = await readNow(path);
  if (found?.updated_at !== left?.updated_at) throw new Error(CHANGED);
  return undo();
}
