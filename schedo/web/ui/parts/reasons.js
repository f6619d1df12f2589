// What each worker says to a job: that it could take it, or why not.
import { html } from '../lib/base.js';
import { legible } from '../lib/legible.js';
import { link } from '../lib/router.js';
import { Time } from './basics.js';

// A sentence of the server with its instants in the chosen zone.
const INSTANT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/;
export const Sentence = ({ text }) => legible(text).split(INSTANT).map((part, index) => (index % 2 ? html`<${Time} at=${part}/>` : part));

// reasons: [{worker, server, ok, text}] of the API; the server only in a cluster.
export const Reasons = ({ reasons }) => html`<dl class="reasons">${reasons.map(({ worker, server, ok, text }) => html`
  <dt><a href=${link(`/workers/${encodeURIComponent(worker)}`)}>${worker}</a>${server && html` <span class="muted">on ${server}</span>`}</dt><dd class=${ok ? 'ok' : ''}>${ok ? 'could take it' : html`<${Sentence} text=${text}/>`}</dd>`)}</dl>`;
