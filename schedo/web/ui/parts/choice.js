// One of some values, as buttons that stand together.
import { html } from '../lib/base.js';

// names: {key: text}; set: called with the key that was chosen.
export const Choice = ({ label, names, chosen, set }) => html`<div class="seg" role="group" aria-label=${label}>${Object.entries(names).map(([key, text]) => html`
  <button aria-pressed=${chosen === key} onClick=${() => set(key)}>${text}</button>`)}</div>`;
