// The palette and the help: loaded when they are opened for the first time.
import { html, signal, useEffect, useState } from '../lib/base.js';

export const isPaletteOpen = signal(false);
export const isHelpOpen = signal(false);

function Loaded({ load, name }) {
  const [Part, setPart] = useState(null);
  useEffect(() => { load().then((module) => setPart(() => module[name])); }, []);
  return Part && html`<${Part}/>`;
}

export const Later = () => html`${isPaletteOpen.value && html`<${Loaded} load=${() => import('./palette.js')} name="Palette"/>`}
  ${isHelpOpen.value && html`<${Loaded} load=${() => import('./help.js')} name="Help"/>`}`;
