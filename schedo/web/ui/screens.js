// The screens: one line each. A screen is a module under screens/ whose default export is its component;
// it gets {params, query}; `style` is its sheet under css/, if it has one. `nav` puts it into the bar and `key` binds "g" and that key to it.
// No name begins with a hyphen, so "-new" hides no schedule.
// `reads`: what it reads at first, whatever its query; browsers ask for that together with the modules.
// The server reads these lines, too: each in one line, `path` first, `style` before `reads`, and the import last.
export const SCREENS = [
  { path: '/', title: 'Overview', nav: 'Overview', key: 'o', style: 'overview', reads: 'v1/me v1/summary v1/timeseries v1/fires v1/failures', load: () => import('./screens/overview.js') },
  { path: '/lateness', title: 'Lateness', style: 'overview', load: () => import('./screens/lateness.js') },
  { path: '/jobs', title: 'Jobs', nav: 'Jobs', key: 'j', style: 'jobs', load: () => import('./screens/jobs.js') },
  { path: '/jobs/{id}', title: 'Job', style: 'jobs', load: () => import('./screens/job.js') },
  { path: '/schedules', title: 'Schedules', nav: 'Schedules', key: 's', style: 'lists', load: () => import('./screens/schedules.js') },
  { path: '/schedules/-new', title: 'New schedule', style: 'lists', load: () => import('./screens/schedule_edit.js') },
  { path: '/schedules/{name}', title: 'Schedule', style: 'lists', load: () => import('./screens/schedule.js') },
  { path: '/schedules/{name}/edit', title: 'Edit a schedule', style: 'lists', load: () => import('./screens/schedule_edit.js') },
  { path: '/queues', title: 'Queues', nav: 'Queues', key: 'q', style: 'lists', load: () => import('./screens/queues.js') },
  { path: '/queues/{name}', title: 'Queue', style: 'lists', load: () => import('./screens/queue.js') },
  { path: '/workers', title: 'Workers', nav: 'Workers', key: 'w', style: 'lists', load: () => import('./screens/workers.js') },
  { path: '/workers/{name}', title: 'Worker', style: 'lists', load: () => import('./screens/worker.js') },
  { path: '/invoke', title: 'Invoke', nav: 'Invoke', key: 'i', style: 'jobs', load: () => import('./screens/invoke.js') },
  { path: '/failures', title: 'Failing', key: 'f', style: 'jobs', load: () => import('./screens/failures.js') },
  { path: '/stats', title: 'Ended jobs', key: 'd', style: 'lists', load: () => import('./screens/stats.js') },
  { path: '/expectations', title: 'Expectations', key: 'e', style: 'lists', load: () => import('./screens/expectations.js') },
  { path: '/cluster', title: 'Servers', key: 'c', style: 'lists', load: () => import('./screens/cluster.js') },
  { path: '/log', title: 'Who did what', nav: 'Who did what', key: 'h', style: 'lists', load: () => import('./screens/log.js') },
  { path: '/login', title: 'Log in', load: () => import('./screens/login.js') },
];
