// What a screen of one schedule shows if the schedule could not be read: that there is none, or why.
import { html } from '../lib/base.js';
import { may } from '../lib/me.js';
import { link } from '../lib/router.js';
import { Empty, Failure } from './basics.js';

export function ScheduleFailure({ title, name, error, reload }) {
  const head = html`<h1 class="wrap">${title}</h1>`;
  if (error.status !== 404) return html`${head}<${Failure} error=${error} what=${`The schedule ${name}`} again=${reload}/>`;
  return html`${head}<${Empty}>There is no schedule of this name. <a href=${link('/schedules')}>All schedules</a>${may('put_schedule') && html` · <a href=${link('/schedules/-new', { name })}>Make it</a>`}</${Empty}>`;
}
