"""A cheap HTTP client: raw HTTP/1.1 requests over persistent connections.

Client and server share the machine, so the client must take as little CPU as possible.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar, cast

import uvloop

from bench.server.process import Process

T = TypeVar("T")
DEADLINE_S = 300.0
OVERLOADED = 429
LAST_CHUNK = b"0\r\n\r\n"


class Reply(NamedTuple):
    """The response to a request."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the parsed body."""
        return json.loads(self.body)


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time; the body of a reply may be in chunks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._reply: asyncio.Future[Reply] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own

    def data_received(self, data: bytes) -> None:
        self._received = received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return
        head, body = received[:end].lower(), received[end + 4 :]
        if b"transfer-encoding: chunked" in head:
            # JSON has no line break of its own, so this is the last chunk.
            is_whole = body.endswith(LAST_CHUNK)
        else:
            at = head.find(b"content-length:")
            is_whole = len(body) >= (int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0)
        if not is_whole or self._reply is None:
            return
        self._received = b""
        reply, self._reply = self._reply, None
        if not reply.done():
            is_chunked = body.endswith(LAST_CHUNK)
            reply.set_result(Reply(int(head[9:12]), join_chunks(body) if is_chunked else body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionError("the server closed the connection"))

    def ask(self, request: bytes) -> asyncio.Future[Reply]:
        """Send a whole request; the future holds the reply."""
        assert self._transport is not None, "connected before"
        self._reply = self._loop.create_future()
        self._transport.write(request)
        return self._reply

    async def get(self, path: str) -> Any:
        """Return the parsed response to a GET."""
        reply = await self.ask(request("GET", path))
        if reply.status >= 400:
            raise RuntimeError(f"GET {path} was answered with {reply.status}: {reply.body!r}")
        return reply.json()

    def close(self) -> None:

        if self._transport is not None:
            self._transport.close()


def join_chunks(body: bytes) -> bytes:
    """Return the data of a whole chunked body of JSON."""
    return b"".join(body.split(b"\r\n")[1::2])


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """Return the bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def job_request(job: object) -> bytes:
    """Return the request that submits one job."""
    return request("POST", "/v1/jobs", json.dumps(job, separators=(",", ":")).encode())


def batch_request(jobs: list[Any]) -> bytes:
    """Return the request that submits many jobs."""
    return request("POST", "/v1/jobs:batch", json.dumps(jobs, separators=(",", ":")).encode())


async def connect(server: Process) -> Connection:
    """Return a connection to the server."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, server.host, server.port)
    return connection


class Load(NamedTuple):
    """The durations of many requests: of each, and of all together."""

    latency_us: list[int]
    elapsed_s: float
    replies: list[Reply]

    @property
    def rate(self) -> float:
        return len(self.replies) / self.elapsed_s


async def send_all(server: Process, requests: Iterable[bytes], connections: int) -> Load:
    """Send the requests, one at a time on each connection; repeat those answered with 429."""
    opened = [await connect(server) for _ in range(connections)]
    left = iter(requests)
    latency: list[int] = []
    replies: list[Reply] = []

    async def work(connection: Connection) -> None:
        for each in left:
            began = time.perf_counter_ns()
            reply = await connection.ask(each)
            while reply.status == OVERLOADED:
                await asyncio.sleep(0.01)
                reply = await connection.ask(each)
            latency.append((time.perf_counter_ns() - began) // 1000)
            replies.append(reply)

    began = time.perf_counter()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*map(work, opened))
        return Load(latency, time.perf_counter() - began, replies)
    finally:
        for connection in opened:
            connection.close()


async def until_idle(server: Process, pause_s: float = 0.01) -> None:
    """Return once no job of the server waits for a worker or runs."""
    connection = await connect(server)  # a new connection, because the server closes idle ones
    async with asyncio.timeout(DEADLINE_S):
        while True:
            queues = (await connection.get("/v1/queues"))["items"]
            if not any(queue["running"] or _due(queue["waiting"]) for queue in queues):
                break
            await asyncio.sleep(pause_s)
    connection.close()


def _due(waiting: dict[str, int]) -> int:
    return sum(count for state, count in waiting.items() if state != "scheduled")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
