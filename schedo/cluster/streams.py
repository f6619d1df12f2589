"""Streams of events with what happens in all servers of a cluster.

Each server has a stream of its own, and the one that was asked joins them. The figures of each
second are its own. When a server joins or leaves, or its stream breaks, the stream of the client
ends. The client connects again, and gets a `reset`, because nothing knows which events of the other
servers it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from schedo.cluster.client_request import ClientRequest
from schedo.errors import SchedoError
from schedo.store.cluster import Member
from schedo.web.http import Pieces, Response

PIECES_MAX = 64  # that wait for the client; the streams wait meanwhile
_LAST_ID = b"last-event-id"
_UNKNOWN_ID = b"0-0"
# The events of other servers that say the same wherever they come from.
_PASSED = (b"job", b"jobs", b"progress", b"schedule", b"schedules", b"reset", b"gap")
_END = b"\n\n"


async def merge_streams(
    asked: ClientRequest, find_others: Callable[[], Sequence[Member]]
) -> Response:
    """Return a response whose body has the events of this server and of the others."""
    request = asked.request
    if _LAST_ID in request.headers:
        headers = {**request.headers, _LAST_ID: _UNKNOWN_ID}
        asked = replace(asked, request=request._replace(headers=headers))
    response = await asked.here()
    assert response.pieces is not None, "a stream comes in pieces"
    streams: list[Pieces] = [response.pieces]
    streams += [_read_events(asked.stream(member)) for member in find_others()]
    return response._replace(pieces=_join(streams, find_others))


async def _join(
    streams: Sequence[Pieces], find_others: Callable[[], Sequence[Member]]
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of all streams until one of them ends, or the members change."""
    members = _epochs(find_others())
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES_MAX)
    reading = [asyncio.create_task(_read(each, pieces), name="schedo events") for each in streams]
    try:
        while (piece := await pieces.get()) is not None and _epochs(find_others()) == members:
            yield piece
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for stream in streams:
            await stream.aclose()


async def _read(stream: Pieces, pieces: asyncio.Queue[bytes | None]) -> None:
    try:
        async for piece in stream:
            await pieces.put(bytes(piece))
    finally:
        await pieces.put(None)


async def _read_events(body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of another server that concern all, without their ids."""
    rest = b""
    try:
        async for part in body:
            *events, rest = (rest + part).split(_END)
            found = b"".join(map(_without_id, events))
            if found:
                yield found
    except SchedoError:
        return  # the server is gone, or does not respond
    finally:
        await body.aclose()


def _without_id(event: bytes) -> bytes:
    """Return the event as it is sent on; empty if it is one of the other server alone."""
    lines = event.split(b"\n")
    names = [line.removeprefix(b"event: ") for line in lines if line.startswith(b"event: ")]
    if not names or names[0] not in _PASSED:
        return b""
    return b"\n".join(line for line in lines if not line.startswith(b"id: ")) + _END


def _epochs(members: Sequence[Member]) -> set[int]:
    return {member.epoch for member in members}
