// What the keys do, what this person may do, and the choices of this browser.
import { html } from '../lib/base.js';
import { bindings } from '../lib/keys.js';
import { me } from '../lib/me.js';
import { singleKeys, theme, zone } from '../lib/prefs.js';
import { Dialog } from './dialog.js';
import { isHelpOpen } from './later.js';

const KEYS = { 'Mod+k': navigator.platform?.startsWith('Mac') ? '⌘ K' : 'Ctrl K' };
const ROLES = {
  viewer: 'You may look at everything and change nothing.',
  operator: 'You may run, retry, cancel and pause; schedules and limits need the role admin.',
  admin: 'You may do everything.',
};

const Choice = ({ label, value, options }) => html`<div class="choice"><span id=${'choice-' + label}>${label}</span>
  <div class="seg" role="group" aria-labelledby=${'choice-' + label}>${options.map(([each, text]) => html`
    <button aria-pressed=${value.value === each} onClick=${() => { value.value = each; }}>${text}</button>`)}</div></div>`;

export function Help() {
  const groups = Map.groupBy ? Map.groupBy(bindings.value, (each) => each.group) : grouped(bindings.value);
  return html`<${Dialog} title="Keys and choices" className="wide" onClose=${() => { isHelpOpen.value = false; }}>
    <h2>Keys and choices</h2>
    <div class="choices">
      <${Choice} label="Times" value=${zone} options=${[['local', 'local'], ['UTC', 'UTC']]}/>
      <${Choice} label="Theme" value=${theme} options=${[['system', 'system'], ['light', 'light'], ['dark', 'dark']]}/>
      <${Choice} label="Keys without Ctrl" value=${singleKeys} options=${[[true, 'on'], [false, 'off']]}/></div>
    ${me.value && html`<p class="muted">${me.value.name === 'anyone' ? 'This server asks for no token.' : html`The token is <b>${me.value.name}</b>, ${me.value.role}.`} ${ROLES[me.value.role]}</p>`}
    <div class="keys">${[...groups].map(([name, list]) => html`<section><h3>${name}</h3><dl>${list.map(({ keys, help }) => html`
      <div><dt>${(KEYS[keys] ?? keys).split(' ').map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${help}</dd></div>`)}</dl></section>`)}</div>
    <form method="dialog" class="buttons"><span class="grow"></span><button class="btn" autofocus>Close</button></form></${Dialog}>`;
}

function grouped(list) {
  const groups = new Map();
  for (const each of list) groups.set(each.group, [...(groups.get(each.group) ?? []), each]);
  return groups;
}
