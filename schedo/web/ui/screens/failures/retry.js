// Retry the jobs of a group. The API finds them by words of their error, which those of other groups may have, too.
import { isOf } from '../../lib/failure_groups.js';
import { now, plural } from '../../lib/format.js';
import { listJobs } from '../../lib/job_list.js';
import { toWhere } from '../../lib/job_query.js';
import { place } from '../../lib/router.js';
import { changeEach, plan } from '../jobs/bulk.js';

const READS_MAX = 4;
const PAGE = 500;
const FIELDS = 'id,state,task,scheduled_at,error';

// All jobs that match; null: they are too many to look at each.
async function readAll(where) {
  const jobs = [];
  let cursor;
  for (let sent = 0; sent < READS_MAX; sent += 1) {
    const page = await listJobs({ ...where, fields: FIELDS, limit: PAGE, cursor });
    jobs.push(...page.items);
    cursor = page.next_cursor;
    if (!cursor) return jobs;
  }
  return null;
}

// query: finds all jobs of the group. Ask, and retry them; return the operation, if it is one.
export async function retryGroup(group, query) {
  const from = place.peek();
  const at = now();
  const jobs = await readAll(toWhere(query, 'retry', at).where);
  const own = jobs?.filter((job) => isOf(group, job));
  if (!jobs || own.length === jobs.length) {
    const note = jobs ? '' : ` They are all that have “${query.error}” in their error, too many to leave out those of other groups.`;
    return plan(query, 'retry', { at, note });
  }
  if (!own.length) throw new Error('No job of this group can be retried.');
  const others = jobs.length - own.length;
  await changeEach(own, 'retry', { from, text: `${plural(others, 'other failed job has', 'other failed jobs have')} the same words in the error, but ${others === 1 ? 'is' : 'are'} of another group, and left alone.` });
  return null;
}
