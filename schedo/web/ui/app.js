// The page: the bar, the screen of the address, and what lies above all screens.
import { isLoggedOut, isTyped } from './lib/api.js';
import { base, effect, html, render, useEffect, useLayoutEffect, useRef, useState } from './lib/base.js';
import { bind } from './lib/keys.js';
import { follow, start } from './lib/live.js';
import { theme, zone, isDark } from './lib/prefs.js';
import { followLinks, go, link, match, place } from './lib/router.js';
import { Failure } from './parts/basics.js';
import { Question } from './parts/dialog.js';
import { AWAY, Later, isHelpOpen, isPaletteOpen, loadPageAgain, read } from './parts/later.js';
import { Toasts } from './parts/toasts.js';
import { TopBar } from './parts/top_bar.js';
import { SCREENS } from './screens.js';

function find(path) {
  for (const screen of SCREENS) {
    const params = match(screen.path, path);
    if (params) return { screen, params };
  }
  return null;
}

// Add the style sheet of a screen, unless the shell or an earlier visit has; wait until it holds.
function addStyle(name) {
  if (!name) return null;
  const { href } = new URL(`./css/${name}.css`, import.meta.url);
  if ([...document.styleSheets].some((sheet) => sheet.href === href)) return null;
  const made = Object.assign(document.createElement('link'), { rel: 'stylesheet', href });
  return new Promise((resolve, reject) => {
    made.onload = resolve;
    made.onerror = () => {
      made.remove();
      reject(new Error(`${href} could not be loaded`));
    };
    document.head.append(made);
  });
}

// Let only the sheet of this screen hold, of those of all screens: the same class may look different on another one.
const STYLES = new Set(SCREENS.filter((each) => each.style).map((each) => new URL(`./css/${each.style}.css`, import.meta.url).href));

function wear(name) {
  const { href } = new URL(`./css/${name}.css`, import.meta.url);
  for (const sheet of document.styleSheets) if (STYLES.has(sheet.href)) sheet.disabled = sheet.href !== href;
}

const AGAIN_MS = 1_000;

let ready = null; // the first screen: {screen, Screen}

// The screen's component, once its module is here. While the server cannot be reached, it is asked again.
function useScreen(found) {
  const [loaded, setLoaded] = useState(ready);
  // The shell has named its files, so they are here, and need not wait for a paint.
  useLayoutEffect(() => {
    let isWanted = true;
    let timer = null;
    const screen = found?.screen;
    const set = (value) => { if (isWanted) setLoaded({ screen, ...value }); };
    const load = () => read(() => Promise.all([screen.load(), addStyle(screen.style)])).then(
      ([module]) => set({ Screen: module.default }),
      (error) => {
        if (!isWanted) return;
        if (error === AWAY) {
          set({ error: new Error(`${error.message}; the screen opens when it is back`) });
          timer = setTimeout(load, AGAIN_MS);
        } else if (!loadPageAgain()) set({ error });
      },
    );
    if (screen && screen !== loaded?.screen) load();
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [found?.screen]);
  return loaded?.screen === found?.screen ? loaded : null;
}

function Main() {
  const { path, query } = place.value;
  const found = find(path);
  const loaded = useScreen(found);
  const main = useRef();
  const before = useRef(path);
  useLayoutEffect(() => { if (loaded?.Screen) wear(found.screen.style); }, [loaded]);
  useEffect(() => {
    if (found && !loaded) return;
    follow();
    // The focus goes where the new content begins, or where it asks for it.
    if (before.current !== path) {
      if (!main.current.contains(document.activeElement)) main.current.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    before.current = path;
  }, [path, loaded]);
  useEffect(() => { document.title = `${found?.screen.title ?? 'Not found'} · schedo`; }, [found?.screen]);
  return html`<main id="main" tabindex="-1" ref=${main}>${content(path, query, found, loaded)}</main>`;
}

function content(path, query, found, loaded) {
  if (!found) return html`<h1>There is nothing at ${path}</h1><p><a href=${link('/')}>Go to the overview</a></p>`;
  if (!loaded) return null;
  if (loaded.error) return html`<h1>${found.screen.title}</h1><${Failure} error=${loaded.error} what="This screen" again=${() => location.reload()}/>`;
  return html`<${loaded.Screen} params=${found.params} query=${query} key=${path}/>`;
}

const skip = (event) => {
  event.preventDefault();
  document.getElementById('main').focus();
};

// Its address follows the view, because a link with # alone would leave the page.
const Skip = () => place.value && html`<a class="skip" href=${location.pathname + '#main'} onClick=${skip}>Skip to content</a>`;

const App = () => html`<${Skip}/><${TopBar}/><${Main}/><${Toasts}/><${Question}/><${Later}/>`;

bind([
  { keys: 'Mod+k', help: 'find, or do', group: 'Everywhere', run: () => { isPaletteOpen.value = true; } },
  { keys: '/', help: 'find, or do', group: 'Everywhere', run: () => { isPaletteOpen.value = true; } },
  { keys: '?', help: 'this list', group: 'Everywhere', run: () => { isHelpOpen.value = true; } },
  { keys: 'u', help: 'local time or UTC', group: 'Everywhere', run: () => { zone.value = zone.value === 'UTC' ? 'local' : 'UTC'; } },
  { keys: 't', help: 'light or dark', group: 'Everywhere', run: () => { theme.value = isDark() ? 'light' : 'dark'; } },
  ...SCREENS.filter((each) => each.key).map((each) => ({
    keys: `g ${each.key}`, help: each.title, group: 'Go to', run: () => go(link(each.path)),
  })),
]);

followLinks((path) => find(path) !== null);

// Without a token the only screen is the login; after it the page starts anew where it was asked for.
effect(() => {
  if (isLoggedOut.value && !isTyped.value && place.value.path !== '/login') {
    const next = location.pathname.slice(base.length - 1) + location.search;
    go(link('/login', { next: next === '/' ? '' : next }), { replace: true });
  }
});

// The login reads nothing: the data and the stream begin with the first other screen.
let isStarted = false;
effect(() => {
  if (isStarted || place.value.path === '/login') return;
  isStarted = true;
  start();
});
// The shell has named the module of the first screen, so it is here: the bar and the screen are drawn together.
const first = find(place.peek().path)?.screen;
Promise.resolve(first?.load()).then(
  (module) => { if (module) ready = { screen: first, Screen: module.default }; },
  () => {}, // then the screen says why
).then(() => {
  const root = document.getElementById('page');
  root.textContent = '';
  render(html`<${App}/>`, root);
});
