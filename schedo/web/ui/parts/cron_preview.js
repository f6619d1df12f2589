// What a rule will do, beside the form in which it is changed.
import { html, useEffect, useState } from '../lib/base.js';
import { clock, count, instant, plural } from '../lib/format.js';
import { explain, spread } from '../lib/cron.js';
import { clockIn } from '../lib/zones.js';
import { YearStrip } from '../charts/year_strip.js';
import { Card, Empty, Since, Time } from './basics.js';

const TYPED_MS = 250;
const SHOWN = 10;
const MARKS = 6;

// The explanation of the rule of a schedule's body: {found, error}; it follows what is typed.
export function useExplanation({ cron, tz, dst }, name) {
  const [state, setState] = useState({});
  useEffect(() => {
    if (!cron?.trim()) {
      setState({});
      return undefined;
    }
    let isWanted = true;
    const timer = setTimeout(() => {
      explain({ cron, tz, dst, name }).then(
        (found) => isWanted && setState({ found }),
        (error) => isWanted && setState({ error }),
      );
    }, TYPED_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [cron, tz, dst?.gap, dst?.fold, name]);
  return state;
}

// Who fires in the same second, and a way to spread them.
function Together({ found, cron, onSpread }) {
  const most = [...(found.together ?? [])].sort((one, other) => other.schedules - one.schedules)[0];
  if (!most?.schedules) return html`<p class="muted">No other schedule fires in the same seconds.</p>`;
  const better = spread(cron);
  const others = most.schedules - most.names.length;
  return html`<p>Fires with <b>${plural(most.schedules, 'other')}</b> at <${Time} at=${most.at}/>: ${most.names.slice(0, 6).join(', ')}${most.names.length > 6 || others > 0 ? ' …' : ''}.</p>
    ${better && html`<p><button type="button" class="btn small" onClick=${() => onSpread(better)}>Use H</button> <span class="muted small"><code>${better}</code>: a minute of its own, from its name.</span></p>`}`;
}

export function CronPreview({ body, state: { found, error }, onSpread }) {
  if (error) return html`<${Card} title="What it means"><p class="failure" role="alert">${error.problem?.errors?.[0]?.detail ?? error.message}</p></${Card}>`;
  if (!found) return html`<${Card} title="What it means"><${Empty}>Type a rule, such as <code>30 2 * * mon-fri</code>.</${Empty}></${Card}>`;
  const { tz } = found;
  return html`<${Card} title="What it means"><p class="says" role="status">${found.description}${found.every ? '' : html` <span class="muted">in ${tz}</span>`}</p>
      ${found.warnings.map((text) => html`<p class="mark warn">${text}</p>`)}<${Together} found=${found} cron=${body.cron} onSpread=${onSpread}/></${Card}>
    <${Card} title="The next ten">${found.next_fires.length ? html`<ol class="fires">${found.next_fires.slice(0, SHOWN).map((at) => html`<li key=${at}><${Time} at=${at} full/>${' '}<span class="muted small">${clockIn(tz, instant(at)) === clock(instant(at)) ? '' : html`<span class="mono">${clockIn(tz, instant(at))}</span> there, `}in <${Since} at=${at} each=${10_000}/></span></li>`)}</ol>` : html`<${Empty}>It never fires.</${Empty}>`}</${Card}>
    <${Card} title="The coming year" about=${found.isCut ? `fires often: the first ${count(found.next_fires.length)} are drawn` : 'a column is a day; amber: the clock changes'}><${YearStrip} fires=${found.next_fires} changes=${found.clock_changes}/>
      ${found.clock_changes.length ? html`<ul class="fires">${found.clock_changes.slice(0, MARKS).map((change) => html`<li key=${change.at}><span class="dst" aria-hidden="true">⌁</span> <${Time} at=${change.at} full/> <span class="muted">${change.description}</span></li>`)}</ul>`
        : html`<p class="muted">No change of the clock moves or repeats a fire.</p>`}</${Card}>`;
}
