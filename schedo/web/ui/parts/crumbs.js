// Where a screen is.
import { html } from '../lib/base.js';

// The way from the screen to its list: [{text, href}].
export const Crumbs = ({ items }) => html`<nav class="crumbs" aria-label="Path">${items.map(({ text, href }, at) => html`
  ${at ? html`<span aria-hidden="true">›</span>` : null}${href ? html`<a href=${href}>${text}</a>` : html`<span>${text}</span>`}`)}</nav>`;
