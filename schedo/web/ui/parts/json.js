// A JSON value with its keys and values in colours, and a way to copy it.
import { html } from '../lib/base.js';
import { reveal } from '../lib/legible.js';

const TOKENS = /("(?:[^"\\]|\\.)*"(?:\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\btrue\b|\bfalse\b|\bnull\b)/;
const COLOURED_MAX = 20_000; // characters; of more, each part of colour would cost more than it tells

const kindOf = (part) => {
  if (part.startsWith('"')) return part.endsWith(':') ? 'json-key' : 'json-text';
  return /^(-?\d|true|false|null)/.test(part) ? 'json-number' : '';
};

export function Json({ value, label }) {
  const text = reveal(JSON.stringify(value, null, 2));
  const parts = text.length > COLOURED_MAX ? [text] : text.split(TOKENS);
  return html`<pre tabindex="0" role="region" aria-label=${label}>${parts.map((part) => {
    const kind = kindOf(part);
    return kind ? html`<span class=${kind}>${part}</span>` : part;
  })}</pre>`;
}
