// What a browser remembers: signals whose values are kept in its storage.
import { effect, signal } from './base.js';

function kept(name, fallback) {
  let value = fallback;
  try {
    value = JSON.parse(localStorage.getItem('schedo.' + name)) ?? fallback;
  } catch {
    // Refused or damaged storage means the default.
  }
  const made = signal(value);
  effect(() => {
    const text = JSON.stringify(made.value);
    try {
      if (made.value === fallback) localStorage.removeItem('schedo.' + name);
      else localStorage.setItem('schedo.' + name, text);
    } catch {
      // The choice lasts as long as the page.
    }
  });
  return made;
}

export const zone = kept('zone', 'local'); // 'local' or 'UTC'
export const theme = kept('theme', 'system'); // 'system', 'light' or 'dark'
export const singleKeys = kept('keys', true); // whether keys without a modifier do something
export const recent = kept('recent', []); // what was opened last from the palette: [{text, to}]

const dark = matchMedia('(prefers-color-scheme: dark)');
const tokens = new Map();

// Grows with each change of the theme; what draws on a canvas reads it, to draw again.
export const themeVersion = signal(0);

effect(() => {
  if (theme.value === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  tokens.clear();
  themeVersion.value = themeVersion.peek() + 1;
});
dark.addEventListener('change', () => {
  tokens.clear();
  themeVersion.value += 1;
});

// Whether the page is dark now.
export const isDark = () => theme.peek() === 'dark' || (theme.peek() === 'system' && dark.matches);

// The value of a design token, such as token('--muted'); read from the style once a theme.
export function token(name) {
  if (!tokens.has(name)) {
    const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const [, light, night] = /^light-dark\((.*?), (.*)\)$/.exec(value) ?? ['', value, value];
    tokens.set(name, isDark() ? night : light);
  }
  return tokens.get(name);
}
