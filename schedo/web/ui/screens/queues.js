// All queues: how full each is, what waits, and when it will be done.
import { get } from '../lib/api.js';
import { html, useEffect, useState } from '../lib/base.js';
import { compact, count, duration, plural } from '../lib/format.js';
import { legible } from '../lib/legible.js';
import { due, readRates, timeToClear } from '../lib/queues.js';
import { link, setQuery } from '../lib/router.js';
import { Empty, Failure, Gauge, Loading, Since } from '../parts/basics.js';
import { useFollowed } from '../parts/followed.js';
import { Later } from '../parts/later_jobs.js';
import { Limit, QueueActions, number } from '../parts/queue_actions.js';
import { Table } from '../parts/table.js';

const RATED = 16; // queues with due jobs whose rate is asked for
const SHOWN = 200;

export const hrefOf = (name) => link(`/queues/${encodeURIComponent(name)}`);

export const Pause = ({ pause }) => html`<span class="mark warn">paused</span>${pause && html` <span class="muted note" title=${legible(pause.note ?? '')}>${legible(pause.note ?? '')}${pause.until ? html` (ends in <${Since} at=${pause.until}/>)` : ''}</span>`}`;

// The rates of the queues in which jobs are due; they are read when others are due.
function useRates(items) {
  const names = items.filter(due).map((queue) => queue.name).slice(0, RATED);
  const [rates, setRates] = useState({});
  useEffect(() => {
    let isWanted = true;
    readRates(names).then((found) => isWanted && setRates(found), () => {}); // without rates, the rest stays true
    return () => { isWanted = false; };
  }, [names.join('/')]);
  return rates;
}

function Clear({ queue, rate }) {
  const micros = timeToClear(queue, rate);
  if (micros === 0) return html`<span class="muted">–</span>`;
  return micros === null ? html`<span class="muted" title="Its rate is not known, or none of its jobs started in the last 15 minutes">not known</span>` : html`${duration(micros)}`;
}

const columns = (rates, reload) => [
  { title: 'Queue', className: 'name', cell: (queue) => html`<a href=${hrefOf(queue.name)}>${queue.name}</a>` },
  { title: 'State', className: 'health', cell: (queue) => (queue.paused ? html`<${Pause} pause=${queue.pause}/>` : html`<span class="mark ok">open</span>`) },
  { title: 'Concurrency', className: 'gauge', cell: (queue) => html`<${Gauge} queue=${queue}/>` },
  { title: 'Running', number: true, cell: (queue) => html`${count(queue.running)} / <${Limit} queue=${queue} field="concurrency" label="concurrency" shown=${queue.concurrency ?? '∞'} read=${number} reload=${reload}/>` },
  { title: 'Due', number: true, cell: (queue) => html`<span class=${due(queue) ? 'mark warn' : 'muted'}>${compact(due(queue))}</span>` },
  { title: 'Later', number: true, className: 'wide', cell: (queue) => html`<span class="muted"><${Later} queue=${queue}/></span>` },
  { title: 'Oldest waits', label: 'Oldest', number: true, cell: (queue) => (queue.oldest_due_at ? html`<${Since} at=${queue.oldest_due_at}/>` : html`<span class="muted">–</span>`) },
  { title: 'Clear in', number: true, className: 'wide', cell: (queue) => html`<${Clear} queue=${queue} rate=${rates[queue.name]}/>` },
  { title: 'Weight', number: true, className: 'wide', cell: (queue) => html`<${Limit} queue=${queue} field="weight" label="weight" shown=${queue.weight} read=${(text) => number(text) ?? undefined} reload=${reload}/>` },
  { title: 'Actions', className: 'acts', cell: (queue) => html`<${QueueActions} queue=${queue} small reload=${reload}/>` },
];

function Sentence({ items }) {
  const paused = items.filter((queue) => queue.paused && due(queue)).length;
  const waiting = items.reduce((sum, queue) => sum + due(queue), 0);
  if (paused) return html`<p class="lead"><span class="mark warn">${plural(paused, 'paused queue')}</span> with due jobs.</p>`;
  return html`<p class="lead">${waiting ? `${plural(waiting, 'job')} ${waiting === 1 ? 'is' : 'are'} due and ${waiting === 1 ? 'waits' : 'wait'}.` : 'No job waits for anything but its time.'}</p>`;
}

export default function Queues({ query }) {
  const [found, error, reload] = useFollowed(() => get('/v1/queues'), ['queues'], ['queues'], []);
  const rates = useRates(found?.items ?? []);
  if (error && !found) return html`<h1>Queues</h1><${Failure} error=${error} what="The queues" again=${reload}/>`;
  if (!found) return html`<h1>Queues</h1><${Loading}/>`;
  const items = found.items;
  const typed = (query.q ?? '').toLowerCase();
  const rows = items.filter((queue) => queue.name.toLowerCase().includes(typed));
  const nothing = items.length ? html`<${Empty}>No queue matches.</${Empty}>` : html`<${Empty}>No queue has jobs or limits. A queue is there as soon as a job names it.</${Empty}>`;
  return html`<div class="head"><h1>Queues</h1><${Sentence} items=${items}/><div class="acts"><a class="btn" href=${link('/stats', { by: 'queue' })}>What ended</a></div></div>
    ${items.length > 8 && html`<div class="filters"><input type="search" aria-label="Find by name" placeholder="name" value=${query.q ?? ''} onInput=${(event) => setQuery({ q: event.target.value })}/></div>`}
    <div class="card stacked"><div class="body"><${Table} caption="Queues" columns=${columns(rates, reload)} rows=${rows.slice(0, SHOWN)} keyOf=${(queue) => queue.name} empty=${nothing}/>
      ${rows.length > SHOWN && html`<p class="muted small">These are ${SHOWN} of ${count(rows.length)}. Type a part of the name of another.</p>`}</div></div>`;
}
