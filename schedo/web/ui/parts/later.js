// What is read when it is needed: the screens, the palette and the help.
import { get, isLoggedOut, isTyped } from '../lib/api.js';
import { html, signal, useEffect, useState } from '../lib/base.js';
import { connection } from '../lib/live.js';
import { toast } from './toasts.js';

// What a browser could not read, as after an upgrade, stays missing for as long as the page is open: so nothing is read while
// the server is known to be away.
export const AWAY = new Error('the server cannot be reached');

const check = () => get('/v1/me').catch((error) => { if (error.status === 0) throw AWAY; });

// Call a function that reads files; throw AWAY.
export async function read(load) {
  if (connection.peek() === 'reconnecting') await check();
  return load().catch(async (error) => {
    await check();
    throw error;
  });
}

// Load the page again, but not again and again; return whether it does.
export function loadPageAgain() {
  const key = 'schedo.reloaded';
  if (Date.now() - Number(sessionStorage.getItem(key)) < 30_000) return false;
  sessionStorage.setItem(key, Date.now());
  location.reload();
  return true;
}

export const isPaletteOpen = signal(false);
export const isHelpOpen = signal(false);

function Loaded({ load, name, isOpen }) {
  const [Part, setPart] = useState(null);
  useEffect(() => {
    read(load).then((module) => setPart(() => module[name]), (error) => {
      isOpen.value = false;
      if (error === AWAY || !loadPageAgain()) toast(error.message, { tone: 'bad' });
    });
  }, []);
  return Part && html`<${Part}/>`;
}

const later = (name, isOpen, load) => isOpen.value && html`<${Loaded} ...${{ name, isOpen, load }}/>`;

export const Later = () => [
  later('Palette', isPaletteOpen, () => import('./palette.js')), later('Help', isHelpOpen, () => import('./help.js')),
  isTyped.value && later('LoginAgain', isLoggedOut, () => import('../screens/login.js')),
];
