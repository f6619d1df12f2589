// The last runs of the same task: how long each took, this one marked.
import { get } from '../../lib/api.js';
import { html } from '../../lib/base.js';
import { duration, instant } from '../../lib/format.js';
import { endOf } from '../../lib/life.js';
import { isDark, themeVersion } from '../../lib/prefs.js';
import { link } from '../../lib/router.js';
import { Card, useData } from '../../parts/basics.js';
import { useWidth } from '../../charts/life.js';

const RUNS = 80;
const HEIGHT = 84;

const RAN = ['completed', 'failed']; // a job that was cancelled or expired may not have been running

// What each ended run took; this job is among them even if it is older than the others.
function listRuns(job, items) {
  const all = items.some((each) => each.id === job.id) ? items.map((each) => (each.id === job.id ? job : each)) : [...items, job];
  return all.filter((each) => each.started_at && RAN.includes(each.state))
    .map((each) => ({ id: each.id, state: each.state, took: endOf(each) - instant(each.started_at) })).reverse();
}

const middle = (numbers) => numbers.toSorted((one, other) => one - other)[numbers.length >> 1];

export function Peers({ job, isEnded }) {
  // Read again when this job has ended, because then it is one of them.
  const [page] = useData(() => get('/v1/jobs', { query: { task: job.task, limit: RUNS } }), [job.task, isEnded]);
  const runs = listRuns(job, page?.items ?? []);
  const title = `The last runs of ${job.task}`;
  if (!page || !runs.length) return html`<${Card} title=${title} id="peers"><p class="muted">${page ? 'No run has ended yet.' : 'Reading…'}</p></${Card}>`;
  return html`<${Card} title=${title} id="peers" more=${{ href: link('/jobs', { task: job.task }), text: 'all' }}><${Runs} runs=${runs} id=${job.id}/></${Card}>`;
}

function Runs({ runs, id }) {
  const [box, width] = useWidth();
  themeVersion.value; // the words name a colour
  const most = Math.max(1, ...runs.map((run) => run.took));
  const half = middle(runs.map((run) => run.took));
  const mine = runs.find((run) => run.id === id);
  const step = Math.min(width / runs.length, 12);
  const high = (took) => Math.max(2, (took / most) * (HEIGHT - 6));
  return html`<div ref=${box} class="peers">${width > 0 && html`<svg width=${width} height=${HEIGHT + 2} role="group"
      aria-label=${`Run times of the last ${runs.length} runs, the newest at the right`}>
    ${runs.map((run, index) => html`<a href=${link(`/jobs/${run.id}`)} tabindex=${run.id === id ? undefined : -1} aria-label=${`${run.id}, ${run.state}, ${duration(run.took)}`}>
      <rect class="hit" x=${index * step} y="0" width=${step} height=${HEIGHT} fill="transparent"/>
      <rect x=${index * step} y=${HEIGHT - high(run.took)} width=${Math.max(1, step - 1.2)} height=${high(run.took)}
        fill=${run.id === id ? 'var(--text)' : run.state === 'completed' ? 'var(--ph-late)' : 'var(--st-failed)'}/>
      <title>${run.id}: ${duration(run.took)}, ${run.state}</title></a>`)}
    <line x1="0" x2=${width} y1=${HEIGHT - high(half)} y2=${HEIGHT - high(half)} stroke="var(--muted)" stroke-dasharray="3 3"/></svg>`}
    <p class="small muted">${mine && `This one, the ${isDark() ? 'white' : 'black'} bar, took ${duration(mine.took)}. `}${runs.length > 1
      && `The median of ${runs.length} is ${duration(half)}, the longest ${duration(most)}.`}</p></div>`;
}
