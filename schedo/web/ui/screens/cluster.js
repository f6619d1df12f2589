// The servers that share a store in PostgreSQL, as the server that was asked sees them.
import { get } from '../lib/api.js';
import { html } from '../lib/base.js';
import { count, duration, plural } from '../lib/format.js';
import { useEvent, useLive } from '../lib/live.js';
import { Empty, Failure, Loading, Tag, useData } from '../parts/basics.js';
import { Table } from '../parts/table.js';

const APART_US = 250_000; // clocks that differ more than the ways of the messages explain
const SILENT_US = 200_000; // then a server starts no jobs

// [0, 1, 2, 5] as "0–2, 5".
function ranges(shards) {
  const found = [];
  for (const shard of shards) {
    const last = found.at(-1);
    if (last && last[1] === shard - 1) last[1] = shard;
    else found.push([shard, shard]);
  }
  return found.map(([first, last]) => (first === last ? first : `${first}–${last}`)).join(', ');
}

const signed = (us) => (us ? `${us > 0 ? '+' : '−'}${duration(Math.abs(us))}` : '0');

function State({ row, me }) {
  if (row.silent_us === null) return html`<span class="mark bad">gone</span>`;
  if (!row.reachable) return html`<span class="mark bad" title=${row.problem}>cannot be reached</span>`;
  if (row.state !== 'open') return html`<span class="mark warn">${row.state}</span>`;
  return html`<span class="mark ok">open</span>${row.number === me ? html` <${Tag}>this page</${Tag}>` : ''}`;
}

const columns = (me) => [
  { title: 'Server', className: 'name', cell: (row) => html`<span class="muted">${row.number}</span> <b>${row.name}</b>${row.url && html`<div class="muted small">${row.url}</div>`}` },
  { title: 'State', className: 'health', cell: (row) => html`<${State} row=${row} me=${me}/>` },
  { title: 'Shards', number: true, cell: (row) => html`<span title=${ranges(row.shards)}>${count(row.shards.length)}</span>` },
  { title: 'Last heartbeat', number: true, cell: (row) => (row.silent_us === null ? '–' : html`<span class=${row.silent_us > SILENT_US ? 'warned' : ''}>${duration(row.silent_us)} ago</span>`) },
  { title: 'Clock', number: true, cell: (row) => (row.clock_ahead_us === undefined ? '–' : html`<span class=${Math.abs(row.clock_ahead_us) > APART_US ? 'warned' : ''} title="By how much the clock of its machine is ahead of that of the database, which all jobs follow">${signed(row.clock_ahead_us)}</span>`) },
  { title: 'Epoch', number: true, className: 'wide', cell: (row) => count(row.epoch) },
  { title: 'Version', className: 'wide', cell: (row) => row.version },
];

function Lead({ found }) {
  const { members, unowned } = found;
  const lost = members.filter((each) => each.silent_us === null || !each.reachable).length;
  return html`<p class="lead">${plural(members.length, 'server')} ${members.length === 1 ? 'has' : 'share'} the store.
    ${lost ? html` <span class="mark bad">${lost} of them</span> cannot be reached.` : ''}
    ${unowned.length ? html` <span class="mark bad">${plural(unowned.length, 'shard')}</span> ${unowned.length === 1 ? 'has' : 'have'} no owner now.` : ' Each shard has an owner.'}</p>`;
}

export default function Cluster() {
  const [found, error, reload] = useData(() => get('/v1/cluster'), []);
  useLive(['tick'], reload);
  useEvent('tick', reload);
  if (error && !found) return html`<h1>Servers</h1><${Failure} error=${error} what="The servers" again=${reload}/>`;
  if (!found) return html`<h1>Servers</h1><${Loading}/>`;
  if (!found.members.length) return html`<h1>Servers</h1><${Empty}>The store is a file, so this server is alone.</${Empty}>`;
  return html`<div class="head"><h1>Servers</h1><${Lead} found=${found}/></div>
    <div class="card stacked"><div class="body"><${Table} caption="Servers" columns=${columns(found.me)} rows=${found.members} keyOf=${(row) => row.epoch}/></div></div>`;
}
