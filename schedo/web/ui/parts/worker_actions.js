// What can be done with a worker: cordon and uncordon, which undo each other, and drain, which asks first.
import { post } from '../lib/api.js';
import { html } from '../lib/base.js';
import { plural } from '../lib/format.js';
import { Action } from './action.js';

export const pathOf = (name) => `/v1/workers/${encodeURIComponent(name)}`;

const change = (name, verb, inverse, done, after) => () => ({
  request: { method: 'POST', path: `${pathOf(name)}:${verb}`, body: {} }, done, after,
  undo: () => post(`${pathOf(name)}:${inverse}`).then(after),
});

const drain = (worker, after) => () => ({
  request: { method: 'POST', path: `${pathOf(worker.name)}:drain`, body: {} }, after, done: `${worker.name} finishes its jobs and leaves.`,
  ask: {
    title: `Drain ${worker.name}?`, danger: true, verb: worker.running ? `Drain after ${plural(worker.running, 'job')}` : 'Drain now',
    text: `It gets no new jobs, ${worker.running ? `finishes the ${plural(worker.running, 'job')} that it runs` : 'runs none'}, and its process ends. Only its own machine can start it again.`,
  },
});

export function WorkerActions({ worker, small, reload }) {
  const { name, state } = worker;
  const size = small ? 'small' : '';
  return html`${state === 'cordoned'
    ? html`<${Action} operation="uncordon_worker" label="Uncordon" className=${size} title=${`Give ${name} new jobs again`} action=${change(name, 'uncordon', 'cordon', `${name} gets new jobs again.`, reload)}/>`
    : state === 'active' && html`<${Action} operation="cordon_worker" label="Cordon" className=${size} title=${`Give ${name} no new jobs`} action=${change(name, 'cordon', 'uncordon', `${name} gets no new jobs.`, reload)}/>`}
    ${(state === 'active' || state === 'cordoned') && html`<${Action} operation="drain_worker" label="Drain…" className=${size} title=${`Let ${name} finish and leave`} action=${drain(worker, reload)}/>`}`;
}
