// The payload of a job or a schedule, which can be hidden from those who may only look.
import { html } from '../lib/base.js';
import { Empty } from './basics.js';
import { Json } from './json.js';

export const Payload = ({ value, label }) => (value === undefined ? html`<${Empty}>Payloads are hidden from you.</${Empty}>` : html`<${Json} value=${value} label=${label}/>`);
