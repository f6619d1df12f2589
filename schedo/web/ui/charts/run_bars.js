// How long the last runs took: a bar each, the newest at the right; red and with a cross if it failed. Heights are logarithmic.
import { html, styled } from '../lib/base.js';
import { duration, instant, when } from '../lib/format.js';
import { link } from '../lib/router.js';
import { TableToggle } from '../parts/table_toggle.js';

const LEAST = 0.06;

// runs: [{job, state, at, value}], the oldest first; value in microseconds; what: the bars' name.
export function RunBars({ runs, what }) {
  const values = runs.map((run) => Math.max(1, run.value));
  const [low, high] = [Math.log(Math.min(...values)) - 0.5, Math.log(Math.max(...values))];
  const height = (value) => `${(LEAST + (1 - LEAST) * (high > low ? (Math.log(Math.max(1, value)) - low) / (high - low) : 0.5)) * 100}%`;
  const sorted = [...values].sort((one, other) => one - other);
  const text = (run) => `${when(run.at)}: ${duration(run.value)}${run.state ? `, ${run.state}` : ''}`;
  return html`<div class="bars" role="group" aria-label=${`${what} of the last ${runs.length} runs, from ${duration(sorted[0])} to ${duration(sorted.at(-1))}`}>
    ${runs.map((run) => html`<a key=${run.job} href=${link(`/jobs/${run.job}`)} tabindex="-1" title=${text(run)} aria-label=${`Job ${run.job}, ${text(run)}`}>
      <i class=${run.state === 'failed' ? 'failed' : ''} ref=${styled({ height: height(run.value) })}></i></a>`)}</div>
    <div class="foot"><span>median ${duration(sorted[Math.floor(sorted.length / 2)])} · longest ${duration(sorted.at(-1))}</span>
      <${TableToggle} caption=${what} head=${['Run', 'State', what]} rows=${() => [...runs].reverse().map((run) => [when(run.at), run.state ?? '', duration(run.value)])}/></div>`;
}

const endOf = (job) => job.completed_at ?? job.failed_at ?? job.cancelled_at;

// The finished runs among jobs of the API, oldest first, with how long their last attempt took.
export const runTimes = (jobs) => jobs.filter((job) => job.started_at && endOf(job)).reverse().map((job) => ({
  job: job.id, state: job.state, at: instant(job.started_at), value: instant(endOf(job)) - instant(job.started_at),
}));
