// What the keys do, what this person may do, and the choices of this browser.
import { api } from '../lib/api.js';
import { base, html, useState } from '../lib/base.js';
import { bindings } from '../lib/keys.js';
import { me } from '../lib/me.js';
import { singleKeys, theme, zone } from '../lib/prefs.js';
import { link } from '../lib/router.js';
import { Dialog } from './dialog.js';
import { isHelpOpen } from './later.js';

const KEYS = { 'Mod+k': navigator.platform?.startsWith('Mac') ? '⌘ K' : 'Ctrl K' };
const NEEDED = {
  operator: 'run, retry, cancel and invoke jobs; trigger and pause schedules; pause queues; cordon and drain workers',
  admin: 'make, change and delete schedules; delete jobs and expectations; change limits',
};
const ABOVE = { viewer: ['operator', 'admin'], operator: ['admin'], admin: [] };

function LogOut() {
  const [error, setError] = useState(null);
  const logOut = async () => {
    const failure = await api('DELETE', '/v1/session').catch((found) => found);
    if (failure && failure.status !== 401) setError(failure); // 401: the session has ended before
    else location.assign(base);
  };
  return html`<button type="button" class="btn small" onClick=${logOut}>Log out</button>${error && html` <span class="mark bad" role="alert">You are still logged in: ${error.text}</span>`}`;
}

// Who this is, and why some buttons are not there.
function Me() {
  const { access, name, role, queues, tasks, hides_payloads: hidesPayloads } = me.value;
  const only = [queues && `the ${queues.length === 1 ? 'queue' : 'queues'} ${queues.join(', ')}`, tasks && `the ${tasks.length === 1 ? 'task' : 'tasks'} ${tasks.join(', ')}`].filter(Boolean).join(' and ');
  return html`<section class="muted" aria-label="What you may do"><p>${access === 'open' ? 'This server asks for no token, so everyone may do everything.' : access === 'anonymous' ? html`You are not logged in, and may look. <a href=${link('/login')}>Log in</a>`
      : html`The token is <b>${name}</b>, ${role}. ${access === 'session' && html`<${LogOut}/>`}`}</p>
    ${(ABOVE[role] ?? []).map((needed) => html`<p>Not shown, because it needs the role ${needed}: ${NEEDED[needed]}.</p>`)}
    ${only && html`<p>The token is only for ${only}. What is done to others is not shown.</p>`}
    ${hidesPayloads && html`<p>Payloads are hidden from the role ${role}, and cannot be searched.</p>`}</section>`;
}

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
    ${me.value && html`<${Me}/>`}
    <div class="keys">${[...groups].map(([name, list]) => html`<section><h3>${name}</h3><dl>${list.map(({ keys, help }) => html`
      <div><dt>${(KEYS[keys] ?? keys).split(' ').map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${help}</dd></div>`)}</dl></section>`)}</div>
    <form method="dialog" class="buttons"><span class="grow"></span><button type="submit" class="btn" data-first>Close</button></form></${Dialog}>`;
}

function grouped(list) {
  const groups = new Map();
  for (const each of list) groups.set(each.group, [...(groups.get(each.group) ?? []), each]);
  return groups;
}
