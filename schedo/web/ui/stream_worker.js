// The shared worker: all pages of a browser share one stream, because an origin has six connections.
import { Stream } from './lib/stream.js';

const SILENT_MS = 90_000; // a page says each 20 s that it is there; a browser delays that in hidden ones
const pages = new Map(); // port -> {wanted, heardAt}
let state = { status: 'connecting' };
let tick = null;

// This file is at {base}ui/{hash}/stream_worker.js.
const stream = new Stream(new URL('../../v1/events', self.location.href).href, (message) => {
  if (message.status) state = message;
  if (message.event === 'tick') tick = message;
  for (const [port, page] of pages) if (page.wanted.length) port.postMessage(message);
});

function follow() {
  stream.want(new Set([...pages.values()].flatMap((page) => page.wanted)));
}

self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    const isNew = !pages.get(port)?.wanted.length && data.wanted?.length;
    if (data.bye) pages.delete(port);
    else {
      pages.set(port, { wanted: data.wanted, heardAt: Date.now() });
      if (isNew && state.status === 'live') {
        port.postMessage(state);
        if (tick) port.postMessage(tick);
      }
    }
    follow();
    if (isNew) stream.again();
  };
};

setInterval(() => {
  for (const [port, page] of pages) if (Date.now() - page.heardAt > SILENT_MS) pages.delete(port);
  follow();
}, 30_000);
