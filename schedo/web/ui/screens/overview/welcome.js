// What an empty server says: how the first job is made, and that the page waits for it.
import { address } from '../../lib/api.js';
import { computed, html } from '../../lib/base.js';
import { features } from '../../lib/me.js';
import { summary, tick } from '../../lib/live.js';
import { Card, Copy } from '../../parts/basics.js';
import { sum, series, drawn } from '../../lib/series.js';

// Whether nothing was ever submitted, as far as this server knows.
export const isEmpty = computed(() => {
  const found = summary.value;
  if (!found || found.states === null) return false;
  drawn.value;
  const seen = tick.value?.figures?.submitted || (series.peek() && sum(series.peek().figures.submitted));
  return !seen && !found.day.submitted && Object.values(found.states).every((number) => !number);
});

const example = (hasTokens) => `curl ${address('/v1/jobs').href} -H 'content-type: application/json' \\
${hasTokens ? '  -H "authorization: Bearer $SCHEDO_TOKEN" \\\n' : ''}  -d '{"task":"shell","payload":{"command":"echo hello"},"delay":"5s"}'`;
const LINES = [
  "schedo run 'echo hello' --in 5s --wait",
  "schedo run 'date' --cron '*/10 * * * * *' --name every-ten-seconds",
];

const Line = ({ text }) => html`<div class="line"><pre>${text}</pre><${Copy} text=${text}/></div>`;

export const Welcome = () => html`<${Card} title="The first job" about="each of these makes one">
  <${Line} text=${example(features.value.tokens)}/>${LINES.map((text) => html`<${Line} text=${text} key=${text}/>`)}
  ${features.value.shell === false && html`<p class="small muted">This server runs no commands. Start it with <code>--allow-shell</code>, or give it the tasks of your application: <code>schedo serve myapp:app</code>.</p>`}
  <p class="pulse"><i aria-hidden="true"></i>Waiting for the first job…</p></${Card}>`;
