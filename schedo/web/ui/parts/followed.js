// Data of a screen that is read again when the stream tells a change, at most each two seconds, and never while the page is hidden.
import { useEffect, useRef } from '../lib/base.js';
import { on, useLive } from '../lib/live.js';
import { useData } from './basics.js';

const EACH_MS = 2_000;

// read: returns a promise; topics: of the stream; events: the names whose arrival means a change; deps as of useData.
export function useFollowed(read, topics, events, deps) {
  const [found, error, reload] = useData(read, deps);
  const again = useRef(reload);
  again.current = reload; // the latest, which reads by the present parameters
  useLive(topics, reload);
  useEffect(() => {
    let timer = null;
    const soon = () => {
      timer ??= setTimeout(() => {
        timer = null;
        if (!document.hidden) again.current();
      }, EACH_MS);
    };
    const stops = events.map((event) => on(event, soon));
    return () => {
      clearTimeout(timer);
      for (const stop of stops) stop();
    };
  }, [events.join()]);
  return [found, error, reload];
}
