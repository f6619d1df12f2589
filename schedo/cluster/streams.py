"""Streams of events with what happens in all servers of a cluster.

Each server has a stream of its own, and the one that was asked joins them; the figures of each
second become those of all servers (live.py). When a server joins or leaves, or its stream breaks,
the stream of the client ends. The client connects again, and gets a `reset`, because nothing knows
which events of the other servers it has seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import orjson

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.hops import OwnRequest
from schedo.cluster.live import MERGED, LiveFigures
from schedo.cluster.servers import Servers
from schedo.engine.summary import RUNS_MAX, WORKERS_MAX
from schedo.errors import SchedoError
from schedo.protocol.events import RETRY, EventsRequest
from schedo.protocol.roles import Role
from schedo.protocol.workers import WorkerResponse
from schedo.store.cluster import Member
from schedo.web.http import Pieces, Response
from schedo.web.permissions import TokenPermission

log = logging.getLogger("schedo.cluster")

_LOOK_S = 1.0  # between two looks whether the servers are the same; a change is seen at once
PIECES_MAX = 64  # that wait for the client; the streams wait meanwhile
BEGIN_S = 2.0  # in which the streams of the others should begin
_RESET = b"event: reset\ndata: {}\n\n"
_LAST_ID = b"last-event-id"
_UNKNOWN_ID = b"0-0"
# The events of other servers that say the same wherever they come from.
_PASSED = frozenset(("job", "jobs", "progress", "schedule", "schedules", "reset", "gap"))
_END = b"\n\n"
_ID, _EVENT, _DATA = b"id: ", b"event: ", b"data: "
# Topics whose events tell only what has changed, and the request for the whole list.
_LISTS = {
    topic: OwnRequest("GET", f"/v1/{topic}", "events", TokenPermission(Role.VIEWER, "events"))
    for topic in ("queues", "workers")
}


class _Piece(NamedTuple):
    """What a server has sent; None: its stream has ended."""

    server: str
    text: bytes | None


async def merge_streams(servers: Servers, asked: ClientRequest) -> Response:
    """Return a response whose body has the events of this server and of the others.

    Also that of a server alone ends when another one joins.
    """
    request, others = asked.request, servers.others()
    if others and _LAST_ID in request.headers:
        headers = {**request.headers, _LAST_ID: _UNKNOWN_ID}
        asked = replace(asked, request=request._replace(headers=headers))
    response = await asked.here()
    assert response.pieces is not None, "a stream comes in pieces"
    return response._replace(pieces=_Joined(servers, asked, others).join(response.pieces))


class _Joined:
    """The streams of all servers for one client."""

    def __init__(self, servers: Servers, asked: ClientRequest, others: Sequence[Member]) -> None:
        self._servers, self._asked, self._others = servers, asked, others
        self._own = servers.cluster.me.name
        self._live = LiveFigures(self._own)
        topics = EventsRequest.read(asked.request.query).topics
        self._lists = [topic for topic in _LISTS if topic in topics]
        self._pieces: asyncio.Queue[_Piece] = asyncio.Queue(PIECES_MAX)
        self._silent: set[str] = set()  # servers whose streams have not begun
        self._all_begun = asyncio.Event()
        self._has_begun = False

    async def join(self, own: Pieces) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of all streams until one of them ends, or the members change."""
        others = self._others
        self._silent.update(member.name for member in others)
        bodies = [self._asked.stream(member) for member in others]
        reading = {self._own: self._read_own(own)}
        reading |= {
            member.name: self._read_other(member, body)
            for member, body in zip(others, bodies, strict=True)
        }
        tasks = [
            asyncio.create_task(self._read_to_end(server, each), name="schedo events")
            for server, each in reading.items()
        ]
        watching = self._watch(_epochs(others))
        tasks.append(asyncio.create_task(watching, name="schedo events watch"))
        try:
            if others:  # also if no event from here follows
                yield RETRY + b"id: %b" % _UNKNOWN_ID + _END
            while True:
                server, text = await self._pieces.get()
                if text is None:
                    return
                if others:
                    text = b"".join(self._pass(server, each) for each in text.split(_END) if each)
                if text:
                    yield text
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (own, *bodies):
                await stream.aclose()

    async def _watch(self, members: set[int]) -> None:
        """End the stream when a server joins or leaves, also while nothing happens."""
        while _epochs(self._servers.others()) == members:
            await self._servers.wait_for_change(_LOOK_S)
        await self._pieces.put(_Piece(self._own, None))

    async def _read_to_end(self, server: str, reading: Coroutine[Any, Any, None]) -> None:
        try:
            await reading
        except SchedoError:
            pass  # the server is gone, or does not respond
        except Exception:
            log.exception("a bug in schedo: a stream of events ends")
        await self._pieces.put(_Piece(server, None))

    async def _read_own(self, stream: Pieces) -> None:
        if "queues" in self._lists and self._others:
            found = await self._asked.context.engine.list_queues()
            counts = [
                {"name": each.queue.name, "running": each.running, "waiting": each.waiting}
                for each in found
            ]
            self._live.note_queues(self._own, counts)
        if "workers" in self._lists and self._others:
            sessions = self._asked.context.engine.sessions
            seen = map(WorkerResponse.of, sessions.list(WORKERS_MAX + 1, RUNS_MAX))
            self._live.workers.note(self._own, [msgspec.to_builtins(each) for each in seen])
        await self._wait_for_others()
        async for piece in stream:
            await self._pieces.put(_Piece(self._own, bytes(piece)))

    async def _wait_for_others(self) -> None:
        """Return when all streams have begun, so that the client reads nothing too early.

        A server that takes long is not waited for: when its stream begins, it gets a `reset`.
        """
        if self._silent:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEGIN_S):
                    await self._all_begun.wait()
        self._has_begun = True

    async def _read_other(self, member: Member, body: AsyncGenerator[bytes, None]) -> None:
        """Read whole events; the first part of the body shows that the stream has begun."""
        rest, has_begun = b"", False
        async for part in body:
            if not has_begun:
                await self._begin(member)
            has_begun = True
            whole, end, rest = (rest + part).rpartition(_END)
            if end:
                await self._pieces.put(_Piece(member.name, whole + end))

    async def _begin(self, member: Member) -> None:
        await self._note_lists(member)
        self._silent.discard(member.name)
        if not self._silent:
            self._all_begun.set()
        if self._has_begun:
            await self._pieces.put(_Piece(member.name, _RESET))

    async def _note_lists(self, member: Member) -> None:
        """Read the queues and the workers of another server."""
        notes = {"queues": self._live.note_queues, "workers": self._live.workers.note}
        for topic in self._lists:
            response = await self._servers.send(member, "forward", _LISTS[topic])
            if response.status == 200:
                notes[topic](member.name, orjson.loads(response.body)["items"])

    def _pass(self, server: str, event: bytes) -> bytes:
        """Return the event as it is sent on; empty if it is not.

        No id is sent on, also none of this server: it would not say which events of the others the
        client has seen, and with it the client would get no `reset` when all others are gone.
        """
        lines = event.split(b"\n")
        name = _find(lines, _EVENT).decode()
        if name in MERGED:
            data = self._live.merge(server, name, orjson.loads(_find(lines, _DATA)))
            if data is None:
                return b""
            lines = [_DATA + orjson.dumps(data) if _is(each, _DATA) else each for each in lines]
        if server != self._own and name not in _PASSED and name not in MERGED:
            return b""
        return b"\n".join(line for line in lines if not _is(line, _ID)) + _END


def _is(line: bytes, field: bytes) -> bool:
    return line.startswith(field)


def _find(lines: Sequence[bytes], field: bytes) -> bytes:
    """Return the value of a field of an event; empty if it has none."""
    return next((line.removeprefix(field) for line in lines if _is(line, field)), b"")


def _epochs(members: Sequence[Member]) -> set[int]:
    return {member.epoch for member in members}
