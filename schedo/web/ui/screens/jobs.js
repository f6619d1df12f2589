// The list of jobs: filters in the address, 50 a page, and rows that never move by themselves.
import { get } from '../lib/api.js';
import { html, useEffect, useRef, useState } from '../lib/base.js';
import { readEnded } from '../lib/ends.js';
import { count, now, plural } from '../lib/format.js';
import { listJobs, readJobs } from '../lib/job_list.js';
import { filtersOf, matches, orderOf, toParameters } from '../lib/job_query.js';
import { loadSummary, summary, useEvent, useLive } from '../lib/live.js';
import { link, setQuery } from '../lib/router.js';
import { TIMED } from '../lib/words.js';
import { CopyAs } from '../parts/action.js';
import { Card, Empty, Failure, Loading, Time, useData, useEvery } from '../parts/basics.js';
import { Pager, Table } from '../parts/table.js';
import { Selection } from './jobs/bulk.js';
import { Filters } from './jobs/filters.js';
import { OperationOf } from './jobs/operation.js';
import { COLUMNS, DUE_COLUMNS, FIELDS, update } from './jobs/rows.js';

const PAGE = 50;
const AGAIN_MS = 60_000; // what ended is added up once a minute
const ABOUT = { newest: ['the newest first', 'an earlier page'], due: ['the soonest first', 'a later page'] };
const NEWS_MAX = 200; // new jobs that are counted: a busy server would fill the memory with their ids

export default function Jobs({ query }) {
  const filters = JSON.stringify(filtersOf(query));
  useEffect(() => { loadSummary(); }, [filters]);
  const [ended,, reload] = useData(readEnded, []); // without it, the rest stays true
  useEvent('missed', reload);
  useEvery(AGAIN_MS, reload);
  return html`<div class="head"><h1>Jobs</h1><div class="acts"><${CopyAs} request=${{ method: 'GET', path: '/v1/jobs', query: { ...toParameters(query, now()), order: orderOf(query) } }} others=${{ link: location.href }}/></div></div>
    <${Filters} query=${query} counts=${summary.value?.states} ended=${ended}/>
    ${query.operation && html`<${OperationOf} id=${query.operation} key=${query.operation}/>`}
    <${List} query=${query} key=${[filters, orderOf(query), query.cursor].join()}/>`;
}

function List({ query }) {
  const order = orderOf(query);
  const parameters = (cursor) => ({ ...toParameters(query, now()), order, fields: FIELDS, limit: PAGE, cursor });
  const read = (cursor) => listJobs(parameters(cursor));
  const [page, error, reload] = useData(() => read(query.cursor), []);
  const [found, setMore] = useState(null); // what "Go on" has found after a search that ended early
  const more = found?.after === page ? found : null; // after a page of new jobs it would leave a gap
  const [selected, select] = useState(new Set());
  const changed = useChanges(query, page, more?.items, () => get('/v1/jobs', { query: parameters(query.cursor) }));
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState(null); // why "Go on" has found nothing
  if (error && !page) return html`<${Failure} error=${error} what="The jobs" again=${reload}/>`;
  if (!page) return html`<${Loading}/>`;
  const last = more ?? page;
  const rows = [...page.items, ...(more?.items ?? [])].map((job) => changed.rows.get(job.id) ?? job);
  const show = () => {
    changed.clear();
    setMore(null);
    setFailure(null);
    select(new Set());
    if (query.cursor) setQuery({ cursor: '' });
    else reload();
  };
  const goOn = async () => {
    if (isBusy) return;
    setBusy(true);
    setFailure(null);
    try {
      const next = await read(last.next_cursor);
      setMore({ ...next, after: page, items: [...(more?.items ?? []), ...next.items], looked_at: next.looked_at && (last.looked_at ?? 0) + next.looked_at });
    } catch (reason) {
      setFailure(reason);
    }
    setBusy(false);
  };
  return html`<${Card} title="Matching jobs" id="list" about=${ABOUT[order ?? 'newest'][query.cursor ? 1 : 0]}
    actions=${html`<div class="news" role="status">${(changed.news > 0 || changed.gone > 0) && html`<button class="btn small" onClick=${show}>${sayNews(changed)}</button>`}</div>`}>
    <div class="stacked"><${Table} caption="Jobs" columns=${order ? DUE_COLUMNS : COLUMNS} rows=${rows} keyOf=${(job) => job.id} selected=${selected} onSelect=${select}
      empty=${html`<${Nothing} query=${query} isPartial=${last.partial}/>`}/></div>
    ${last.partial && html`<p class="bounded">Looked through ${count(last.looked_at)} jobs, ${order ? 'up to those due at' : 'back to'} <${Time} at=${last.searched_to}/>.
      <button class="btn small" aria-disabled=${isBusy} aria-busy=${isBusy} onClick=${goOn}>Go on</button></p>`}
    ${failure && html`<${Failure} error=${failure} what="The rest" again=${goOn}/>`}
    <${Selection} query=${query} rows=${rows} selected=${selected} select=${select} reload=${show} hasMore=${Boolean(last.next_cursor)}/>
    <${Pager} shown=${plural(rows.length, 'job')} isFirst=${!query.cursor} next=${last.partial ? '' : last.next_cursor}
      onFirst=${() => setQuery({ cursor: '' }, { push: true })} onNext=${() => setQuery({ cursor: last.next_cursor }, { push: true })}/></${Card}>`;
}

function sayNews({ news, isExact, hasMore, isNext }) {
  if (isNext) return 'What comes next has changed: show';
  if (!isExact) return 'Other jobs have changed: show';
  if (hasMore || news >= NEWS_MAX) return `${count(news)} new jobs or more match: show`;
  return `${plural(news, 'new job matches', 'new jobs match')}: show`;
}

const Nothing = ({ query, isPartial }) => {
  if (isPartial) return html`<${Empty}>Nothing was found so far.</${Empty}>`;
  if (Object.keys(filtersOf(query)).length) return html`<${Empty}>No job matches. <a href=${link('/jobs')}>Show all jobs</a></${Empty}>`;
  return html`<${Empty}>There are no jobs. <a href=${link('/')}>The overview</a> shows how to submit the first one.</${Empty}>`;
};

// Follow the list: rows get their new state where they are; other jobs that match are only counted.
// more: the jobs below the page; readNow: reads the first jobs of the page again.
function useChanges(query, page, more, readNow) {
  const [, again] = useState(0);
  // isOld: whether jobs may have changed while the page was read
  const found = useRef({ rows: new Map(), news: new Set(), isExact: true, hasMore: false, isOld: false }).current;
  const redraw = () => again((turn) => turn + 1);
  const items = [...(page?.items ?? []), ...(more ?? [])];
  const shown = new Map(items.map((job) => [job.id, job]));
  const isNext = orderOf(query) === 'due';
  const placeOf = (job) => (isNext ? job.scheduled_at + job.id : job.id);
  const isBefore = (one, other) => (isNext ? placeOf(one) < placeOf(other) : placeOf(one) > placeOf(other));
  const isWanted = (job) => !shown.has(job.id) && (items.length < PAGE || isBefore(job, items.at(-1))) && (!query.cursor || (items.length && isBefore(items[0], job)));
  useEvent('jobs', (data) => {
    if (!page) {
      found.isOld = true;
      return;
    }
    if (!data.jobs) {
      found.isExact = false;
      found.news.add('');
    }
    for (const job of data.jobs ?? []) {
      const row = found.rows.get(job.id) ?? shown.get(job.id);
      if (row) found.rows.set(job.id, update(row, job));
      else if (found.news.size < NEWS_MAX && isWanted(job) && matches(query, job) !== false) {
        found.isExact &&= matches(query, job) === true;
        found.news.add(job.id);
      }
    }
    redraw();
  }, [page, more]);
  // The stream has begun, or has missed something: the page of now tells what is new, and each job that has left it what it is now.
  const compare = async () => {
    const { items: present } = await readNow();
    for (const job of present) {
      if (shown.has(job.id)) found.rows.set(job.id, job);
      else found.news.add(job.id);
    }
    found.hasMore ||= present.length === PAGE && !present.some((job) => shown.has(job.id));
    redraw();
    const here = new Set(present.map((job) => job.id));
    for (const job of await readJobs([...shown.keys()].filter((id) => !here.has(id)))) found.rows.set(job.id, job);
    redraw();
  };
  useLive(['jobs'], () => {
    if (page) compare().catch(() => {}); // the server is away again: then it is read again
    else found.isOld = true;
  });
  useEffect(() => {
    if (!page || !found.isOld) return;
    found.isOld = false;
    compare().catch(() => {});
  }, [page]);
  const clear = () => {
    found.rows.clear();
    found.news.clear();
    found.isExact = true;
    found.hasMore = false;
  };
  // Jobs of what comes next that no longer wait: others have come up after the last row.
  const gone = isNext ? [...found.rows.values()].filter((job) => shown.has(job.id) && !TIMED.includes(job.state)).length : 0;
  // A job may be noted while the page that has it is on its way.
  const news = [...found.news].filter((id) => !shown.has(id)).length;
  return { rows: found.rows, news, gone, isNext, isExact: found.isExact, hasMore: found.hasMore, clear };
}
