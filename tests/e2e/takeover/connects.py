"""New connections at a rate, each for one request: as cheap as Python can make them.

`python -m tests.e2e.takeover.connects PORT RATE` runs until SIGTERM, and then prints its counts as
JSON, as traffic.py does. One loop with epoll has all connections, because an event loop's streams
would cost more than the server.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import struct
import sys
import time
from collections import Counter
from typing import NamedTuple

RESPONSE_S = 30.0
OPEN_MAX = 1_000
REQUEST = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # else each port would wait for a minute


class _Open(NamedTuple):
    sock: socket.socket
    until: float


class Connects:
    """All connections of the process."""

    def __init__(self, port: int, rate: int) -> None:
        self._address = ("127.0.0.1", port)
        self._rate = rate
        self._poll = select.epoll()
        self._open: dict[int, _Open] = {}
        self._is_stopping = False
        self.counts: Counter[str] = Counter()

    def stop(self, *_: object) -> None:
        """Open no more; those that are open get their responses."""
        self._is_stopping = True

    def run(self) -> None:
        """Connect until `stop`."""
        began, done = time.monotonic(), 0
        while not self._is_stopping or self._open:
            now = time.monotonic()
            due = 0 if self._is_stopping else int((now - began) * self._rate) - done
            for _ in range(min(due, OPEN_MAX - len(self._open))):
                done += 1
                self._connect(now)
            for descriptor, _ in self._poll.poll(0.002):
                self._receive(descriptor)
            if self._open and next(iter(self._open.values())).until < now:
                self._end(next(iter(self._open)), "failed new connection: no response")

    def _connect(self, now: float) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        sock.connect_ex(self._address)
        self._poll.register(sock, select.EPOLLOUT)
        self._open[sock.fileno()] = _Open(sock, now + RESPONSE_S)

    def _receive(self, descriptor: int) -> None:
        """Send the request of a new connection, or read a response."""
        sock = self._open[descriptor].sock
        try:
            if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "")
            data = sock.recv(4_096)
        except BlockingIOError:  # it is connected
            sock.send(REQUEST)
            self._poll.modify(descriptor, select.EPOLLIN)
            return
        except OSError as error:
            self._end(descriptor, f"failed new connection: errno {error.errno}")
            return
        self._end(descriptor, _describe(data))

    def _end(self, descriptor: int, what: str) -> None:
        self.counts[what] += 1
        self._open.pop(descriptor).sock.close()


def _describe(data: bytes) -> str:
    """Return how a request ended; the server sends this response at once."""
    head, _, body = data.partition(b"\r\n\r\n")
    if not data:
        return "failed new connection: closed"
    if not head.startswith(b"HTTP/1.1 200 ") or not body:
        return f"failed new connection: {data[:30]!r}"
    return "answered new connection"


if __name__ == "__main__":
    connects = Connects(int(sys.argv[1]), int(sys.argv[2]))
    signal.signal(signal.SIGTERM, connects.stop)
    connects.run()
    print(json.dumps(connects.counts), flush=True)
