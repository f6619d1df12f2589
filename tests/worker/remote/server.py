"""A server of the worker protocol on a real socket; the test sends its responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

JOB = "0000000000011"
LEASE = f"{JOB}.1.7"


class Exchange:
    """One request of a worker, and the response that the test gives."""

    def __init__(self, body: bytes, headers: dict[str, str]) -> None:
        self.body: dict[str, Any] = json.loads(body)
        self.headers = headers
        self.reply: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()  # the worker has hung up

    @property
    def is_poll(self) -> bool:
        """Whether the request is a poll: only polls carry `running`."""
        return "running" in self.body

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results, without how long the attempts ran (`ran`), which no test can foresee."""
        return [
            {name: value for name, value in result.items() if name != "ran"}
            for result in self.body.get("results", ())
        ]

    def answer(self, **fields: Any) -> None:
        """Respond with 200 and these fields."""
        self.respond(200, json.dumps(answer_of(**fields)).encode())

    def refuse(self, status: int, code: str, detail: str, **headers: str) -> None:
        """Respond with a problem document."""
        problem = {"status": status, "code": code, "detail": detail}
        self.respond(status, json.dumps(problem).encode(), **headers)

    def respond(self, status: int, body: bytes, **headers: str) -> None:
        """Respond with any status, body and headers."""
        lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.reply.set_result("\r\n".join([*lines, "", ""]).encode() + body)

    def drop(self) -> None:
        """Close the connection without a response."""
        self.reply.set_result(None)


class WorkServer:
    """Collects the requests of workers in the order of arrival."""

    def __init__(self) -> None:
        self.url = ""
        self._received_polls: asyncio.Queue[Exchange] = asyncio.Queue()
        self._received_reports: asyncio.Queue[Exchange] = asyncio.Queue()
        self._arrived = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    async def next_poll(self) -> Exchange:
        """Return the next poll."""
        async with asyncio.timeout(10):
            return await self._received_polls.get()

    async def next_report(self) -> Exchange:
        """Return the next report."""
        async with asyncio.timeout(10):
            return await self._received_reports.get()

    async def next_request(self) -> Exchange:
        """Return the next request; of those that have arrived, reports come first."""
        async with asyncio.timeout(10):
            while self.is_silent:
                self._arrived.clear()
                await self._arrived.wait()
        received = (
            self._received_polls if self._received_reports.empty() else self._received_reports
        )
        return received.get_nowait()

    @property
    def is_silent(self) -> bool:
        """Whether the test has seen every request."""
        return self._received_polls.empty() and self._received_reports.empty()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        assert first == "POST /v1/work HTTP/1.1"
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        exchange = Exchange(await reader.readexactly(int(headers["content-length"])), headers)
        (self._received_polls if exchange.is_poll else self._received_reports).put_nowait(exchange)
        self._arrived.set()
        hung_up = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((hung_up, exchange.reply), return_when=asyncio.FIRST_COMPLETED)
        hung_up.cancel()
        await asyncio.wait((hung_up,))
        if not exchange.reply.done():
            exchange.gone.set()
            return False
        reply = exchange.reply.result()
        writer.write(reply or b"")
        await writer.drain()
        return reply is not None


@contextlib.asynccontextmanager
async def work_server() -> AsyncIterator[WorkServer]:
    """Run a server while the block runs."""
    server = WorkServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        await server.close()
        await listener.wait_closed()


def answer_of(**fields: Any) -> dict[str, Any]:
    """Return the fields of a response."""
    lists: dict[str, Any] = {"leases": [], "stop": [], "revoked": [], "refused": []}
    numbers = {"protocol": 1, "epoch": 7, "heartbeat": 10, "session_timeout": 30}
    return {**numbers, **lists, "drain": False, **fields}


def lease_of(task: str = "work", payload: object = None, **fields: Any) -> dict[str, Any]:
    """Return the fields of a lease."""
    given = {
        "lease": LEASE,
        "job": JOB,
        "attempt": 1,
        "task": task,
        "queue": "default",
        "payload": payload,
        "scheduled_for": "2026-11-20T11:04:05.000250Z",
        "trigger": "submit",
    }
    return {**given, **fields}


def lease_text(number: int) -> str:
    """Return the name of another lease."""
    return f"00000000000{number:02d}.1.7"
