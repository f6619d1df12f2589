// Who changed the job by hand, and by what.
import { html } from '../../lib/base.js';
import { deedOf } from '../../lib/life.js';
import { link } from '../../lib/router.js';
import { Card, Time } from '../../parts/basics.js';

const how = ({ via, operation }) => (operation
  ? html` with <a href=${link('/jobs', { operation })}>others</a>` : via && ` via ${via}`);

// items: of GET /v1/jobs/{id}/history.
export function Hands({ items }) {
  const changes = items.filter((each) => each.by).reverse();
  if (!changes.length) return null;
  return html`<${Card} title="Changed by hand" id="hands"><ul class="hands">${changes.map((each) => html`<li>
    <b>${each.by}</b>${how(each)}: ${deedOf(each)} <span class="muted"><${Time} at=${each.at}/></span></li>`)}</ul></${Card}>`;
}
