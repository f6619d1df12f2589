// What a job wrote: it follows while the job runs, and can be wrapped, numbered and searched.
import { address } from '../../lib/api.js';
import { parseAnsi } from '../../lib/ansi.js';
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../../lib/base.js';
import { bytes, count, plural } from '../../lib/format.js';
import { Card, Copy } from '../../parts/basics.js';

const LINES = 500; // are shown at first, the last ones; each click shows ten times as many
const NEAR_END = 24; // pixels: who is nearer to the end than that follows it

const nameOf = ({ stream, attempt }) => `${stream} of attempt ${attempt}`;

// streams: [{attempt, stream, text, total_bytes, truncated, isLive}]
export function Output({ id, streams, isRunning }) {
  const [chosen, choose] = useState(null);
  const [isWrapped, wrap] = useState(true);
  const [isNumbered, setNumbered] = useState(false);
  const [needle, find] = useState('');
  const stream = streams.find((each) => nameOf(each) === chosen) ?? streams.find((each) => each.text) ?? streams[0];
  const lines = useMemo(() => parseAnsi(stream?.text ?? ''), [stream?.text]);
  if (!stream) return isRunning ? html`<${Card} title="Output" id="output"><p class="muted">Nothing was written yet. It appears here as it is written.</p></${Card}>` : null;
  const about = `${bytes(stream.total_bytes)}, ${plural(lines.length, 'line')}${stream.truncated ? ', the middle is left out' : ''}${stream.isLive ? ', as it is written' : ''}`;
  const download = address(`/v1/jobs/${id}/output`, { stream: stream.stream, attempt: stream.attempt }).href;
  return html`<${Card} title="Output" id="output" about=${about}>
    <div class="tools">
      ${streams.length > 1 ? html`<select aria-label="Stream" value=${nameOf(stream)} onChange=${(event) => choose(event.target.value)}>
        ${streams.map((each) => html`<option value=${nameOf(each)} selected=${each === stream}>${nameOf(each)}, ${bytes(each.total_bytes)}</option>`)}</select>`
      : html`<span class="muted small">${nameOf(stream)}</span>`}
      <span class="grow"></span>
      <button class="btn small" aria-pressed=${isWrapped} onClick=${() => wrap(!isWrapped)}>Wrap</button>
      <button class="btn small" aria-pressed=${isNumbered} onClick=${() => setNumbered(!isNumbered)}>Numbers</button>
      <${Copy} className="btn small" text=${stream.text}/>
      ${!stream.isLive && html`<a class="btn small" href=${download} download=${`${id}.${stream.attempt}.${stream.stream}.txt`}>Download</a>`}
      <${Find} lines=${lines} needle=${needle} find=${find}/></div>
    <${Lines} lines=${lines} needle=${needle} isWrapped=${isWrapped} isNumbered=${isNumbered} isLive=${stream.isLive} key=${nameOf(stream)}/></${Card}>`;
}

const plain = (line) => line.map((part) => part.text).join('').toLowerCase();

function Find({ lines, needle, find }) {
  const found = needle ? lines.filter((line) => plain(line).includes(needle.toLowerCase())).length : 0;
  const next = (event) => {
    if (event.key !== 'Enter') return;
    const marks = [...document.querySelectorAll('.lines .found')];
    const at = marks.findIndex((mark) => mark.classList.contains('at'));
    marks[at]?.classList.remove('at');
    const wanted = marks.at((at + (event.shiftKey ? -1 : 1)) % marks.length);
    wanted?.classList.add('at');
    wanted?.scrollIntoView({ block: 'nearest' });
    event.preventDefault();
  };
  return html`<span class="find-in"><input type="search" aria-label="Find in the output" placeholder="Find…" value=${needle}
    onInput=${(event) => find(event.target.value)} onKeyDown=${next}/><small class="muted" role="status">${needle && plural(found, 'line')}</small></span>`;
}

// The lines from the last ones on; while it follows, its end stays in sight.
function Lines({ lines, needle, isWrapped, isNumbered, isLive }) {
  const [shown, show] = useState(LINES);
  const box = useRef();
  const follows = useRef(true);
  useLayoutEffect(() => { if (isLive && follows.current) box.current.scrollTop = box.current.scrollHeight; }, [lines, isLive]);
  useEffect(() => { if (needle) show(lines.length); }, [needle]);
  const scroll = () => { follows.current = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < NEAR_END; };
  const from = Math.max(0, lines.length - shown);
  const width = String(lines.length).length;
  return html`${from > 0 && html`<button class="btn small earlier" onClick=${() => show(shown * 10)}>${count(from)} earlier lines</button>`}
    <pre class=${`lines ${isWrapped ? '' : 'nowrap'}`} ref=${box} tabindex="0" role="region" aria-label="The lines of the output" onScroll=${scroll}>${lines.slice(from).map((line, index) => html`
      <${Row} line=${line} number=${isNumbered ? String(from + index + 1).padStart(width) : null} needle=${needle} key=${from + index}/>`)}</pre>`;
}

function Row({ line, number, needle }) {
  const isFound = needle !== '' && plain(line).includes(needle.toLowerCase());
  return html`<div class=${isFound ? 'found' : ''}>${number !== null && html`<span class="number" aria-hidden="true">${number}</span>`}${line.length
    ? line.map(({ text, style }) => (style || isFound ? html`<span class=${style}>${isFound ? mark(text, needle) : text}</span>` : text)) : '\u200b'}</div>`;
}

// The text with what was searched for marked in it.
function mark(text, needle) {
  const parts = [];
  const low = text.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(needle.toLowerCase()); at >= 0; at = low.indexOf(needle.toLowerCase(), from)) {
    parts.push(text.slice(from, at), html`<mark>${text.slice(at, at + needle.length)}</mark>`);
    from = at + needle.length;
  }
  return [...parts, text.slice(from)];
}
