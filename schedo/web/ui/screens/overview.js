// The overview: is it well, since when, what comes, where it queues, who works, what is wrong.
import { html, useEffect, useLayoutEffect } from '../lib/base.js';
import { loadSummary, on, summary, useLive } from '../lib/live.js';
import { loadSeries } from '../lib/series.js';
import { Loading } from '../parts/basics.js';
import { Failing } from './overview/failing.js';
import { Figures, Verdict } from './overview/verdict.js';
import { Lateness, Throughput } from './overview/pictures.js';
import { NextDay } from './overview/next_day.js';
import { Queues } from './overview/queues.js';
import { Waiting } from './overview/waiting.js';
import { Welcome, isEmpty } from './overview/welcome.js';
import { Workers } from './overview/workers.js';

export default function Overview({ query }) {
  useLive(['tick', 'queues', 'workers']);
  useLayoutEffect(() => { loadSeries(); }, []);
  useEffect(() => on('opened', () => loadSummary()), []);
  const isKnown = summary.value !== null;
  // The parts that read data of their own begin with that at once, in a grid that is not seen yet.
  return html`<h1 class="vh">Overview</h1>${!isKnown && html`<${Loading}/>`}<div class="grid" hidden=${!isKnown}>
    ${isKnown && html`<section class="card c12" aria-label="Verdict"><${Verdict}/><${Figures}/></section>
      ${isEmpty.value && html`<${Welcome}/>`}<${Lateness} query=${query}/><${Throughput}/>`}
    <${NextDay}/>
    ${isKnown && html`<${Queues}/><${Workers}/>`}
    <${Failing}/>${isKnown && html`<${Waiting}/>`}</div>`;
}
