"""The requests of tasks that still run in an old process survive a further upgrade."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from schedo.client.async_transport import Streams
from schedo.client.errors import Unreachable
from schedo.core.model import JobSpec
from schedo.worker import successor_backend
from schedo.worker.successor_backend import SuccessorBackend

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Servers:
    """The servers that get the connections, one after the other; each takes one request."""

    def __init__(self, *answers: Answer | None) -> None:
        """None: there is no server at that moment."""
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> Streams:
        answer = self._answers.pop(0)
        if answer is None:
            raise ConnectionRefusedError("nobody listens")
        ours, theirs = socket.socketpair()
        self.tasks.append(asyncio.create_task(self._serve(theirs, answer)))
        return await asyncio.open_unix_connection(sock=ours)

    async def _serve(self, sock: socket.socket, answer: Answer) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        self.requests.append((await reader.readline()).strip())
        await answer(reader, writer)
        writer.close()
        await writer.wait_closed()


async def drop(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the connection with the request unanswered."""


def respond(record: object) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = json.dumps(record).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(body))
        writer.write(b"Content-Type: application/json\r\n\r\n" + body)
        await writer.drain()

    return answer


Backends = Callable[..., tuple[SuccessorBackend, Servers]]


@pytest.fixture
async def backends(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Backends]:
    monkeypatch.setattr(successor_backend, "_PAUSE_S", 0.0)
    made: list[tuple[SuccessorBackend, Servers]] = []

    def make(*answers: Answer | None) -> tuple[SuccessorBackend, Servers]:
        servers = Servers(*answers)
        made.append((SuccessorBackend(servers.connect), servers))
        return made[-1]

    yield make
    for backend, servers in made:
        await backend.close()
        await asyncio.gather(*servers.tasks)


async def test_a_request_that_a_replaced_server_drops_goes_to_the_next_one(
    backends: Backends,
) -> None:
    backend, servers = backends(drop, None, respond({"id": "a", "state": "running"}))

    assert (await backend.get("a"))["state"] == "running"
    assert servers.requests == [b"GET /v1/jobs/a HTTP/1.1"] * 2


async def test_a_submission_is_repeated_with_the_same_key(backends: Backends) -> None:
    heads: list[bytes] = []

    def keeping(answer: Answer) -> Answer:
        async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await answer(reader, writer)

        return keep

    job = {"id": "0" * 13, "state": "ready", "task": "t", "queue": "default"}
    backend, _ = backends(keeping(drop), keeping(respond({"items": [{"status": 201, "job": job}]})))

    await backend.submit_specs([JobSpec("t")])

    assert heads[0] == heads[1]
    assert b"idempotency-key" in heads[0].lower()


async def test_a_wait_that_is_dropped_goes_on_for_the_rest_of_its_time(backends: Backends) -> None:
    backend, servers = backends(drop, respond({"id": "a", "state": "completed"}))

    assert (await backend.wait("a", 5.0))["state"] == "completed"

    first, second = (float(each.split(b"=")[1].split(b" ")[0]) for each in servers.requests)
    assert second < first <= 5.0


async def test_a_wait_ends_with_its_time(backends: Backends) -> None:
    backend, servers = backends(respond({"id": "a", "state": "running"}))

    assert (await backend.wait("a", 0.0))["state"] == "running"
    assert len(servers.requests) == 1


async def test_without_a_server_a_request_fails_in_the_end(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(successor_backend, "REPEAT_S", 0.0)
    backend, _ = backends(None)

    with pytest.raises(Unreachable, match="nobody listens"):
        await backend.get("a")
