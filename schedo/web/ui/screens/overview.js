// The overview: is it well, since when, what comes, where it queues, who works, what is wrong.
import { html } from '../lib/base.js';
import { bytes } from '../lib/format.js';
import { summary, tick, useLive } from '../lib/live.js';
import { Loading } from '../parts/basics.js';

function Verdict() {
  const verdict = tick.value?.verdict ?? summary.value.verdict;
  const { store_bytes: store, memory_bytes: memory } = summary.value;
  return html`<div class="verdict"><span class=${'dot ' + verdict.level} aria-hidden="true"></span><p>${verdict.text}</p>
    <span class="small muted">store ${bytes(store)} · memory ${bytes(memory)}</span></div>`;
}

export default function Overview() {
  useLive(['tick', 'queues', 'workers']);
  if (!summary.value) return html`<h1 class="vh">Overview</h1><${Loading}/>`;
  return html`<h1 class="vh">Overview</h1><div class="grid"><section class="card c12" aria-label="Verdict"><${Verdict}/></section></div>`;
}
