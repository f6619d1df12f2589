// What fails, in groups: read again while attempts fail, at most each five seconds.
import { get } from '../lib/api.js';
import { useRef } from '../lib/base.js';
import { useEvent } from '../lib/live.js';
import { useData } from './basics.js';

const EACH_MS = 5_000;

// [answer of GET /v1/failures, error, reload]; the screen follows the topic `tick`.
export function useFailures() {
  const found = useData(() => get('/v1/failures'), []);
  const [,, reload] = found;
  const readAt = useRef(Date.now());
  const isOld = useRef(false);
  useEvent('missed', reload);
  useEvent('tick', ({ figures }) => {
    isOld.current ||= Boolean(figures?.failed || figures?.attempts_failed);
    if (!isOld.current || Date.now() - readAt.current < EACH_MS) return;
    isOld.current = false;
    readAt.current = Date.now();
    reload();
  });
  return found;
}
