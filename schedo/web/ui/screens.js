// The screens: one line each. A screen is a module under screens/ whose default export is its component;
// it gets {params, query}; `style` is its sheet under css/, if it has one. `nav` puts it into the bar and `key` binds "g" and that key to it.
// The server reads these lines, too: each in one line, `path` first and the import last.
export const SCREENS = [
  { path: '/', title: 'Overview', nav: 'Overview', key: 'o', style: 'overview', load: () => import('./screens/overview.js') },
  { path: '/lateness', title: 'Lateness', style: 'overview', load: () => import('./screens/lateness.js') },
  { path: '/login', title: 'Log in', load: () => import('./screens/login.js') },
];
