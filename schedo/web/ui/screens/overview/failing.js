// What fails, in groups of the same task and message.
import { html } from '../../lib/base.js';
import { compact } from '../../lib/format.js';
import { legible } from '../../lib/legible.js';
import { link } from '../../lib/router.js';
import { Card, Empty, Failure, Loading, Time } from '../../parts/basics.js';
import { useFailures } from '../../parts/failures.js';

const SHOWN = 6;

export function Failing() {
  const [found, error, reload] = useFailures();
  return html`<${Card} title="Failing" span=${7} about="failed attempts by task and message, since the server started"
    more=${{ href: link('/failures'), text: 'all groups' }}>${content(found, error, reload)}</${Card}>`;
}

function content(found, error, reload) {
  if (error && !found) return html`<${Failure} error=${error} what="What fails" again=${reload}/>`;
  if (!found) return html`<${Loading}/>`;
  if (!found.items.length) return html`<${Empty}>No attempt has failed since the server started.</${Empty}>`;
  return html`<div class="table" role="group" aria-label="Failing" tabindex="0"><table class="fixed"><thead><tr><th scope="col" class="num n">Attempts</th><th scope="col" class="num n">Jobs</th><th scope="col" class="task">Task</th>
    <th scope="col">Message</th><th scope="col" class="num at">Last</th></tr></thead><tbody>${found.items.slice(0, SHOWN).map((group) => html`
    <tr key=${group.task + group.type + group.message}><td class="num"><b>${compact(group.count)}</b></td><td class="num">${compact(group.failed_jobs)}</td>
      <td title=${group.task}><a href=${link('/jobs', { task: group.task, state: 'failed' })}>${group.task}</a></td>
      <td class="muted" title=${group.last_message}>${legible(group.last_message || group.type)}</td>
      <td class="num"><a href=${link(`/jobs/${group.last_job}`)}><${Time} at=${group.last_at}/></a></td></tr>`)}</tbody></table></div>`;
}
