"""Clients that send requests without a pause, and note each one that fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_LATER = {"task": "nothing", "delay": "1h"}
_POLL = {"session": "s", "tasks": ["none"], "slots": 1, "running": [], "wait": "20s"}


class Clients:
    """Counts the responses of each kind of client, and keeps what failed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answered: Counter[str] = Counter()
        self.failed: list[str] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run clients of each kind during the block."""
        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "new connection": self._connect_anew,
            "keep-alive": self._keep_alive,
            "pipelined": self._pipeline,
            "wait": self._wait,
            "poll": self._poll,
            "slow body": self._send_slowly,
        }
        tasks = [asyncio.create_task(self._repeat(name, once)) for name, once in kinds.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, name: str, once: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await once()
            except (OSError, EOFError, AssertionError) as error:
                self.failed.append(f"{name}: {error!r}")
            self.answered[name] += 1

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Streams]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _connect_anew(self) -> None:
        async with self._connected() as (reader, writer):
            writer.write(request("GET", "/v1/info"))
            await respond(reader)

    async def _keep_alive(self) -> None:
        async with self._connected() as (reader, writer):
            closes = False
            while not closes:
                writer.write(request("POST", "/v1/jobs", _LATER))
                closes = await respond(reader)

    async def _pipeline(self) -> None:
        """Send some requests at once; all of them are answered, also when the last one closes."""
        async with self._connected() as (reader, writer):
            closes = False
            while not closes:
                writer.write(request("GET", "/v1/info") * 8)
                for left in range(7, -1, -1):
                    closes = await respond(reader)
                    assert not (closes and left), f"closed with {left} requests unanswered"

    async def _wait(self) -> None:
        async with self._connected() as (reader, writer):
            writer.write(request("POST", "/v1/jobs?wait=3s", _LATER))
            await respond(reader)

    async def _poll(self) -> None:
        async with self._connected() as (reader, writer):
            writer.write(request("POST", "/v1/work", {"worker": "far", **_POLL}))
            await respond(reader)

    async def _send_slowly(self) -> None:
        async with self._connected() as (reader, writer):
            data = request("POST", "/v1/jobs", {**_LATER, "payload": "x" * 3_000})
            for at in range(0, len(data), 300):
                writer.write(data[at : at + 300])
                await asyncio.sleep(0.03)
            await respond(reader)


def request(method: str, path: str, body: object = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
    kind = "" if body is None else "Content-Type: application/json\r\n"
    return f"{head}{kind}\r\n".encode() + data


async def respond(reader: asyncio.StreamReader) -> bool:
    """Read a response, which is no error; return whether the server closes the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    assert head.split()[1] < b"400", (head, body)
    return b"connection: close" in head
