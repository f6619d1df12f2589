// How many jobs of a queue wait for something other than a slot, with a link to those that come next.
import { html } from '../lib/base.js';
import { compact } from '../lib/format.js';
import { later } from '../lib/queues.js';
import { link } from '../lib/router.js';
import { NEXT } from '../lib/words.js';

export function Later({ queue, text = compact(later(queue)) }) {
  if (!later(queue)) return text;
  return html`<a href=${link('/jobs', { queue: queue.name, ...NEXT })} title=${`What comes next in ${queue.name}`}>${text}</a>`;
}
