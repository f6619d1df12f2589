// What fails, in groups of the same task and error, and a way to retry the jobs of a group.
import { html, useState } from '../lib/base.js';
import { compact, count, plural } from '../lib/format.js';
import { SEQUENCE, legible } from '../lib/legible.js';
import { may } from '../lib/me.js';
import { go, link, setQuery } from '../lib/router.js';
import { CountBars } from '../charts/count_bars.js';
import { Card, Empty, Failure, Loading, Time } from '../parts/basics.js';
import { useFailures } from '../parts/failures.js';
import { toast } from '../parts/toasts.js';
import { Table } from '../parts/table.js';
import { retryGroup } from './failures/retry.js';

const PART_MAX = 200; // characters of the filter `error`

// The longest piece of the message that all failures of the group share, as it is in their errors; # stands for what varies.
const shared = (group) => group.message.replace(SEQUENCE, '#').split(/[#\p{C}]/u).map((part) => part.trim())
  .reduce((best, part) => (part.length > best.length ? part : best), '').slice(0, PART_MAX) || group.type;

const queryOf = (group) => ({ task: group.task, state: 'failed', error: shared(group) });

const hourOf = (group) => group.recent.reduce((sum, each) => sum + each, 0);

// What the groups can be sorted by, most first; the server has the last failures first.
const SORTS = { attempts: (group) => group.count - group.beyond, jobs: (group) => group.failed_jobs, hour: hourOf };
const sort = (groups, by) => (SORTS[by] ? groups.toSorted((one, other) => SORTS[by](other) - SORTS[by](one)) : groups);

export default function Failures({ query }) {
  const [found, error, reload] = useFailures();
  if (error && !found) return html`<h1>Failing</h1><${Failure} error=${error} what="What fails" again=${reload}/>`;
  if (!found) return html`<h1>Failing</h1><${Loading}/>`;
  const words = (query.q ?? '').toLowerCase();
  const groups = sort(found.items, query.sort).filter((group) => `${group.task} ${group.type} ${group.message}`.toLowerCase().includes(words));
  const attempts = groups.reduce((sum, group) => sum + SORTS.attempts(group), 0);
  const jobs = groups.reduce((sum, group) => sum + group.failed_jobs, 0);
  return html`<div class="head"><h1>Failing</h1><div class="acts"><a class="btn" href=${link('/stats', { sort: 'failed' })}>By hours and days</a><a class="btn" href=${link('/jobs', { state: 'failed' })}>All failed jobs</a></div></div>
    <div class="filters"><div class="search"><form role="search" onSubmit=${(event) => event.preventDefault()}><input type="search" aria-label="Filter the groups" placeholder="a task or a message"
      value=${query.q ?? ''} onInput=${(event) => setQuery({ q: event.target.value })}/></form></div></div>
    <${Card} title=${plural(groups.length, 'group')} id="groups" about=${html`${plural(attempts, 'failed attempt')}, and ${plural(jobs, 'job')} that ${jobs === 1 ? 'has' : 'have'} no retry left, since <${Time} at=${found.since}/>; # stands for numbers and ids that vary; a bar is 2 minutes`}>
      <div class="stacked"><${Table} caption="What fails" columns=${COLUMNS} rows=${groups} sort=${{ by: query.sort || 'last', descending: true }} onSort=${(by) => setQuery({ sort: by === 'last' ? '' : by })}
        keyOf=${(group) => [group.task, group.type, group.exit_code, group.message].join('\n')}
        empty=${html`<${Empty}>${words ? 'No group matches.' : html`No attempt has failed since <${Time} at=${found.since}/>.`}</${Empty}>`}/></div></${Card}>`;
}

function Retry({ group }) {
  const [isBusy, setBusy] = useState(false);
  const retry = async () => {
    if (isBusy) return;
    setBusy(true);
    try {
      const operation = await retryGroup(group, queryOf(group));
      if (operation) go(link('/jobs', { ...queryOf(group), operation: operation.id }));
    } catch (error) {
      toast(error.text ?? error.message, { tone: 'bad' });
    }
    setBusy(false);
  };
  return html`<button class="btn small" aria-disabled=${isBusy} aria-busy=${isBusy} onClick=${retry} aria-label=${`Retry these… ${group.task}: ${shared(group)}`}>Retry these…</button>`;
}

const tellHour = (group) => (hourOf(group) ? `${plural(hourOf(group), 'failed attempt')} in the last hour, at most ${count(Math.max(...group.recent))} within 2 minutes` : 'none in the last hour');

const COLUMNS = [
  { title: 'Task', cell: (group) => html`<a href=${link('/jobs', queryOf(group))}>${group.task}</a>` },
  { title: 'Message', className: 'cut text', cell: (group) => html`<span title=${legible(group.last_message)}>${legible(group.message)}</span>` },
  { title: 'Error', cell: (group) => html`${group.type}${group.exit_code !== null && html` <span class="tag">exit code ${group.exit_code}</span>`}` },
  { title: 'Attempts', number: true, sort: 'attempts', cell: (group) => html`<b title=${group.beyond ? `at most ${count(group.beyond)} of them belong to groups that are gone` : undefined}>${group.beyond ? '≤ ' : ''}${count(group.count)}</b>` },
  { title: 'Jobs failed', number: true, sort: 'jobs', cell: (group) => count(group.failed_jobs) },
  { title: 'The last hour', label: 'Last hour', sort: 'hour', cell: (group) => html`<span class="hour"><b class="num">${compact(hourOf(group))}</b>
    <${CountBars} counts=${group.recent} label=${tellHour(group)} color="var(--st-failed)"/></span>` },
  { title: 'First', className: 'wide', cell: (group) => html`<${Time} at=${group.first_at}/>` },
  { title: 'Last', label: 'Last', sort: 'last', cell: (group) => html`<a href=${link(`/jobs/${group.last_job}`)}><${Time} at=${group.last_at}/></a>` },
  { title: 'What to do', className: 'acts', cell: (group) => (group.failed_jobs > 0 && may('create_operation') ? html`<${Retry} group=${group}/>` : null) },
];
