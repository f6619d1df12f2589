// Before an invocation: which workers could take it now, and why the others could not.
import { post } from '../../lib/api.js';
import { html, useEffect, useState } from '../../lib/base.js';
import { may } from '../../lib/me.js';
import { parseWritten } from '../../lib/written.js';
import { Card, Empty } from '../../parts/basics.js';
import { Glyph } from '../../parts/state.js';
import { useFollowed } from '../../parts/followed.js';
import { Reasons, Sentence } from '../../parts/reasons.js';

const TYPING_MS = 300; // without a change, before the server is asked

// The text of a value, once it has not changed for a while.
function useSettled(value) {
  const text = value && JSON.stringify(value);
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

// What the server says about the invocation of a body: [answer, error]; asked again as workers and queues change.
export function useTakers(body) {
  const wanted = useSettled(body?.task && may('invoke') ? body : null);
  const ask = () => (wanted ? post('/v1/invoke', { ...parseWritten(wanted), dry_run: true }) : Promise.resolve(null));
  const [answer, error] = useFollowed(ask, ['workers', 'queues'], ['workers', 'queues'], [wanted]);
  return [wanted ? answer : null, wanted ? error : null];
}

export function Takers({ answer, error }) {
  if (!may('invoke')) return null;
  if (error) return html`<${Card} title="Who would take it" id="takers"><p role="status"><${Glyph} state="failed"/> ${error.text}</p></${Card}>`;
  if (!answer) return html`<${Card} title="Who would take it" id="takers"><${Empty}>Name a task, and this says which workers could run it now.</${Empty}></${Card}>`;
  const { would_start: isAble, text, workers, has_more_workers: hasMore } = answer;
  const sorted = workers.toSorted((one, other) => other.ok - one.ok);
  return html`<${Card} title="Who would take it" id="takers" about="now; a moment later it may be different">
    <p class="takers" role="status"><${Glyph} state=${isAble ? 'completed' : 'failed'}/> <b><${Sentence} text=${`${text[0].toUpperCase()}${text.slice(1)}.`}/></b></p>
    ${sorted.length > 0 && html`<${Reasons} reasons=${sorted}/>`}${hasMore && html`<p class="small muted">There are more workers.</p>`}</${Card}>`;
}
