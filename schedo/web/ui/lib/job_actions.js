// What can be done to one job, each with the way back.
import { api, get, post } from './api.js';
import { may } from './me.js';
import { ENDED } from './words.js';

const AGAIN = ['failed', 'cancelled', 'expired'];

// Cancel a job that an action has queued, unless it was started meanwhile.
async function cancelUnlessStarted(id) {
  const job = await get(`/v1/jobs/${id}`);
  if (job.state === 'running' || ENDED.includes(job.state)) throw new Error('it has started already');
  await post(`/v1/jobs/${id}:cancel`);
}

// The way back from each action, by the job as it was before: it waits again for its instant.
export const UNDO = {
  retry: (job) => cancelUnlessStarted(job.id),
  run: (job) => api('PATCH', `/v1/jobs/${job.id}`, { run_at: job.scheduled_at }),
  cancel: (job) => post(`/v1/jobs/${job.id}:retry`, { run_at: job.scheduled_at }),
};

// The actions that the job's state and the caller's role permit: {operation, key, label, action, className}.
export function listActions(job, after) {
  const request = (verb) => ({ path: `/v1/jobs/${job.id}:${verb}` });
  const isRunning = job.state === 'running';
  return [
    AGAIN.includes(job.state) && {
      operation: 'retry_job', key: 'r', label: 'Retry', className: 'primary',
      action: () => ({ request: request('retry'), done: 'The job is queued again.', undo: () => UNDO.retry(job), after }),
    },
    ['scheduled', 'retrying'].includes(job.state) && {
      operation: 'run_job', key: 'e', label: 'Run now', className: 'primary',
      action: () => ({ request: request('run'), done: 'The job is due now.', undo: () => UNDO.run(job), after }),
    },
    !ENDED.includes(job.state) && {
      operation: 'cancel_job', key: 'c', label: isRunning ? 'Cancel…' : 'Cancel', className: 'danger',
      action: () => ({
        request: request('cancel'), after, done: isRunning ? 'The job was asked to stop.' : 'The job is cancelled.',
        ask: isRunning && {
          title: `Cancel ${job.task} while it runs?`, verb: 'Cancel the job', danger: true,
          text: 'Its worker is asked to stop it. What it has done so far stays done.',
        },
        undo: isRunning ? undefined : () => UNDO.cancel(job),
      }),
    },
  ].filter((each) => each && may(each.operation, job));
}
