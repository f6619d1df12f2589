"""Clients of GET /v1/events: some that read, and some that never do."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import cast

from bench.server.evidence import NotDone
from bench.server.process import Process

ALL = "tick,jobs,schedules,queues,workers"
OVERVIEW = "queues,tick,workers"  # what the first screen of the page follows
OPENED_S = 30.0
_NAMES = {name: f"event: {name}\n".encode() for name in ("tick", "gap", "reset")}


class Follower(asyncio.Protocol):
    """A client that reads its stream at once, and counts events."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = 0
        self.events = dict.fromkeys(_NAMES, 0)
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        text = self._rest + data
        lines, _, self._rest = text.rpartition(b"\n")
        lines += b"\n"
        for name, line in _NAMES.items():
            self.events[name] += lines.count(line)
        if not self.opened.done():
            if lines.startswith(b"HTTP/1.1 200 "):
                self.opened.set_result(None)
            else:
                self.opened.set_exception(NotDone(f"a stream was answered with {text[:60]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(exc or NotDone("the server closed a stream"))

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()


def _request(topics: str) -> bytes:
    return f"GET /v1/events?topics={topics} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


async def follow(server: Process, count: int, topics: str) -> list[Follower]:
    """Open streams, and return when the server has begun to answer each."""
    loop = asyncio.get_running_loop()
    followers: list[Follower] = []
    async with asyncio.timeout(OPENED_S):
        for _ in range(count):
            transport, made = await loop.create_connection(Follower, server.host, server.port)
            transport.write(_request(topics))
            followers.append(made)
        await asyncio.gather(*(each.opened for each in followers))
    return followers


def hang_up(followers: list[Follower]) -> None:
    """Close the streams."""
    for each in followers:
        each.close()


async def open_deaf(server: Process, count: int, topics: str) -> list[socket.socket]:
    """Ask for streams and never read them; the kernel keeps little for these clients."""
    loop = asyncio.get_running_loop()
    sockets = []
    for _ in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.setblocking(False)
        with suppress(ConnectionError):  # it may be refused; what it costs counts
            await loop.sock_connect(sock, (server.host, server.port))
            await loop.sock_sendall(sock, _request(topics))
        sockets.append(sock)
    return sockets
