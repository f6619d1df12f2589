// The screens: one line each. A screen is a module under screens/ whose default export is its component;
// it gets {params, query}. `nav` puts it into the bar and `key` binds "g" and that key to it.
// A first part of an address that is new here must also be in SCREENS of schedo/web/site.py.
export const SCREENS = [
  { path: '/', title: 'Overview', nav: 'Overview', key: 'o', load: () => import('./screens/overview.js') },
  { path: '/login', title: 'Log in', load: () => import('./screens/login.js') },
];
