// An operation on many jobs while it runs, and how it ended. Its id is in the address, so a reload shows it again.
import { get } from '../../lib/api.js';
import { html } from '../../lib/base.js';
import { count, plural } from '../../lib/format.js';
import { useEvent } from '../../lib/live.js';
import { isAt, link, setQuery } from '../../lib/router.js';
import { Failure, useData } from '../../parts/basics.js';
import { Action } from '../../parts/action.js';

const ACTIVE = ['counting', 'running'];
// What an operation does and has done, by its action; an undo has the action that it undoes.
const WORDS = { retry: ['Retrying', 'retried'], run: ['Making due', 'made due'], cancel: ['Cancelling', 'cancelled'], delete: ['Deleting', 'deleted'] };
const wordsOf = ({ action, undoes }) => (undoes ? ['Putting back', 'put back'] : WORDS[action]);

export function OperationOf({ id }) {
  const [operation, error, reload] = useData(() => get(`/v1/operations/${encodeURIComponent(id)}`), [id]);
  const isActive = ACTIVE.includes(operation?.state);
  useEvent('tick', () => { if (isActive) reload(); }, [isActive]);
  const close = () => setQuery({ operation: '' });
  if (error && !operation) return html`<${Failure} error=${error} what="The operation" again=${reload}/>`;
  if (!operation) return null;
  const canUndo = !isActive && operation.done > 0 && operation.action !== 'delete' && !operation.undoes;
  const { done, skipped, failed, total, state } = operation;
  const [doing, wasDone] = wordsOf(operation);
  return html`<section class="operation" aria-label="Operation">
    <p role="status"><b>${isActive ? `${doing} ${total === undefined ? 'jobs' : plural(total, 'job')}` : `${plural(done, 'job')} ${done === 1 ? 'was' : 'were'} ${wasDone}`}</b>
      ${isActive ? html`, ${count(done)} done` : state !== 'done' && html`; the operation was ${state}`}${skipped > 0 && html`, ${count(skipped)} skipped`}${failed > 0 && html`, <span class="bad">${count(failed)} not changed</span>`}.</p>
    ${isActive && html`<progress max=${Math.max(1, total ?? 1)} value=${total === undefined ? undefined : done + skipped + failed} aria-label="Progress"></progress>`}
    <span class="grow"></span>
    ${isActive && html`<${Action} operation="cancel_operation" className="small" label="Stop it" action=${() => ({ request: { path: `/v1/operations/${id}:cancel` }, done: 'The operation ends here; what it changed stays so.', after: reload })}/>`}
    ${canUndo && html`<${Action} operation="undo_operation" className="small" label="Undo" title="Puts back the jobs that have not started"
      action=${() => ({ request: { path: `/v1/operations/${id}:undo` }, done: 'The jobs that have not started are put back.', after: (undoing) => isAt({ path: '/jobs' }) && setQuery({ operation: undoing.id }) })}/>`}
    ${!isActive && html`<button class="btn small quiet" onClick=${close}>Close</button>`}
    ${operation.error && html`<p class="bad">${operation.error}</p>`}
    ${operation.errors.length > 0 && html`<details><summary>What went wrong</summary><ul>${operation.errors.map(({ job, message }) => html`<li><a class="mono" href=${link(`/jobs/${job}`)}>${job}</a> ${message}</li>`)}</ul></details>`}</section>`;
}
