// What can be done with a schedule: trigger, pause, resume, edit, delete; each can be undone.
import { api, post } from '../lib/api.js';
import { html } from '../lib/base.js';
import { may } from '../lib/me.js';
import { link } from '../lib/router.js';
import { bodyOf, isExact } from '../lib/schedules.js';
import { undoOwn } from '../lib/undo.js';
import { Action } from './action.js';
import { withNote } from './note.js';

const UNDO_MS = 30_000;
export const pathOf = (name) => `/v1/schedules/${encodeURIComponent(name)}`;
export const hrefOf = (name, rest = '') => link(`/schedules/${encodeURIComponent(name)}${rest}`);

const triggered = (answer) => (answer.job
  ? html`The job <a href=${link(`/jobs/${answer.job.id}`)}>${answer.job.id}</a> is made.`
  : html`Nothing was made: <a href=${link(`/jobs/${answer.blocking_job}`)}>${answer.blocking_job}</a> has not ended.`);

export const trigger = (name, after) => () => ({
  request: { method: 'POST', path: `${pathOf(name)}:trigger`, body: {} },
  done: triggered,
  undo: (answer) => (answer.job ? post(`/v1/jobs/${answer.job.id}:cancel`) : Promise.reject(new Error('there is nothing to cancel'))),
  after,
});

// The way back from a pause or a resume, with the note of the pause before it. What passes meanwhile counts as missed.
export const putBack = ({ name, paused, note }, after) => (left) => undoOwn(pathOf(name), left, () => (paused
  ? post(`${pathOf(name)}:pause`, note ? { note } : {})
  : post(`${pathOf(name)}:resume`, { resume_from: left.updated_at }))).then(after);

const pause = (schedule, after) => () => ({
  ...withNote({
    path: `${pathOf(schedule.name)}:pause`, title: `Pause ${schedule.name}?`, verb: 'Pause', hint: 'why, for the others',
    text: 'It does not fire until it is resumed. Runs that have been made go on.',
  }),
  done: `${schedule.name} is paused.`, after,
  undo: putBack(schedule, after),
});

const resume = (schedule, after) => () => ({
  request: { method: 'POST', path: `${pathOf(schedule.name)}:resume`, body: {} },
  done: `${schedule.name} fires again.`, after,
  undo: putBack(schedule, after),
});

export function remove(schedule, after) {
  const { name, owner } = schedule;
  const body = bodyOf(schedule);
  const query = owner === 'api' ? undefined : { owner };
  return () => ({
    request: { method: 'DELETE', path: pathOf(name) },
    ask: {
      title: `Delete ${name}?`, verb: 'Delete the schedule', danger: true, type: name,
      text: `It never fires again, and its decisions and counters are gone. The jobs that it made stay.${
        isExact(body) ? '' : ' It cannot be put back from here, because its payload has a masked secret or a number that this page cannot repeat exactly.'}`,
    },
    done: `${name} is deleted.`, after,
    undo: isExact(body) ? () => undoOwn(pathOf(name), null, () => api('PUT', pathOf(name), body, { query })) : undefined,
    undoMs: UNDO_MS,
  });
}

// The buttons. small: for a row of the list, without those that only its own screen has.
export function ScheduleActions({ schedule, small, reload, onDeleted }) {
  const { name, paused } = schedule;
  const size = small ? 'small' : '';
  return html`<${Action} operation="trigger_schedule" on=${schedule} label="Trigger" className=${size} title=${`Make a run of ${name} now`} action=${trigger(name, reload)}/>
    ${paused
      ? html`<${Action} operation="resume_schedule" on=${schedule} label="Resume" className=${size} title=${`Let ${name} fire again`} action=${resume(schedule, reload)}/>`
      : html`<${Action} operation="pause_schedule" on=${schedule} label="Pause…" className=${size} title=${`Stop ${name} from firing`} action=${pause(schedule, reload)}/>`}
    ${!small && may('put_schedule') && html`<a class="btn" href=${hrefOf(name, '/edit')}>Edit</a><a class="btn" href=${link('/schedules/-new', { from: name })}>Duplicate</a>`}
    ${!small && html`<${Action} operation="delete_schedule" label="Delete…" className="danger" action=${remove(schedule, onDeleted)}/>`}`;
}
