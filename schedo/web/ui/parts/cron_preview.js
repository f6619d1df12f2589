// What a rule will do, beside the form in which it is changed.
import { html, useEffect, useState } from '../lib/base.js';
import { clock, count, instant, micros, now, plural, round } from '../lib/format.js';
import { explain, questionOf, spread, typedInstant } from '../lib/cron.js';
import { clockIn } from '../lib/zones.js';
import { YearStrip } from '../charts/year_strip.js';
import { Card, Empty, Since, Time } from './basics.js';
import { Fires } from './fires.js';

const TYPED_MS = 250;
const SHOWN = 10;
const MARKS = 6;

// The explanation of the rule of a schedule's body: {found, error}; it follows what is typed.
export function useExplanation(body, name) {
  const [state, setState] = useState({});
  const question = JSON.stringify(questionOf(body, name));
  useEffect(() => {
    if (question === 'null') {
      setState({});
      return undefined;
    }
    let isWanted = true;
    const timer = setTimeout(() => {
      explain(JSON.parse(question)).then(
        (found) => isWanted && setState({ found }),
        (error) => isWanted && setState({ error }),
      );
    }, TYPED_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [question]);
  return state;
}

// Who fires in the same second, and a way to spread them.
function Together({ found, cron, onSpread }) {
  const most = [...(found.together ?? [])].sort((one, other) => other.schedules - one.schedules)[0];
  if (!most?.schedules) return html`<p class="muted">No other schedule fires in the same seconds.</p>`;
  const better = cron && spread(cron);
  const others = most.schedules - most.names.length;
  return html`<p>Fires with <b>${plural(most.schedules, 'other')}</b> at <${Time} at=${most.at}/>: ${most.names.slice(0, 6).join(', ')}${most.names.length > 6 || others > 0 ? ' …' : ''}.</p>
    ${better && html`<p><button type="button" class="btn small" onClick=${() => onSpread(better)}>Use H</button> <span class="muted small"><code>${better}</code>: a minute of its own, from its name.</span></p>`}`;
}

// A fire of the list: with a jitter its run is due at some time of a range, which ends at the next fire at the latest.
function Fire({ at, next, jitter, tz }) {
  const there = clockIn(tz, instant(at));
  return html`<li><${Fires} at=${at} next=${next} jitter=${jitter}/> <span class="muted small">${there === clock(instant(at)) ? '' : html`<span class="mono">${there}</span> there, `}in <${Since} at=${at} each=${10_000}/></span></li>`;
}

const Once = ({ at }) => html`<${Card} title="What it means">${Number.isNaN(at) ? html`<${Empty}>Type an instant, such as <code>2027-01-04T06:00:00Z</code>.</${Empty}>`
  : html`<p class="says" role="status">Once, at <${Time} at=${at} full/></p><p class="muted">${at > now() ? html`in <${Since} at=${at}/>` : 'That has passed.'}</p>`}</${Card}>`;

export function CronPreview({ body, state: { found, error }, onSpread }) {
  if (body.at !== undefined) return html`<${Once} at=${typedInstant(body.at)}/>`;
  if (error) return html`<${Card} title="What it means">${error.status === 422 ? html`<${Empty}>This is no rule yet.</${Empty}>` : html`<p class="failure" role="status">${error.text}</p>`}</${Card}>`;
  if (!found) return html`<${Card} title="What it means"><${Empty}>Type a rule, such as <code>${body.every === undefined ? '30 2 * * mon-fri' : '15m'}</code>.</${Empty}></${Card}>`;
  const { tz, next_fires: fires } = found;
  const jitter = micros(body.jitter ?? '');
  return html`<${Card} title="What it means"><p class="says" role="status">${found.description}${found.every ? '' : html` <span class="muted">in ${tz}</span>`}${jitter ? html`<span class="muted">, each run up to ${round(jitter)} later</span>` : ''}</p>
      ${found.warnings.map((text) => html`<p class="mark warn">${text}</p>`)}<${Together} found=${found} cron=${body.cron} onSpread=${onSpread}/></${Card}>
    <${Card} title="The next ten" about=${jitter ? 'from the instant to the end of its jitter' : undefined}>${fires.length ? html`<ol class="fires">${fires.slice(0, SHOWN).map((at, place) => html`<${Fire} key=${at} at=${at} next=${fires[place + 1]} jitter=${jitter} tz=${tz}/>`)}</ol>` : html`<${Empty}>It never fires.</${Empty}>`}</${Card}>
    ${!found.every && html`<${Card} title="The coming year" about=${found.isCut ? `fires often: the first ${count(fires.length)} are drawn` : 'a column is a day; amber: the clock changes'}><${YearStrip} fires=${fires} changes=${found.clock_changes}/>
      ${found.clock_changes.length ? html`<ul class="fires">${found.clock_changes.slice(0, MARKS).map((change) => html`<li key=${change.at}><span class="dst" aria-hidden="true">⌁</span> <${Time} at=${change.at} full/> <span class="muted">${change.description}</span></li>`)}</ul>`
        : html`<p class="muted">No change of the clock moves or repeats a fire.</p>`}</${Card}>`}`;
}
