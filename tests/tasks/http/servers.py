"""Real servers on a loopback port for http jobs to call, and runners that may call them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from schedo.core.leases import AttemptResult
from schedo.core.model import Options
from schedo.tasks.http.task import HttpRunner
from tests.worker.calls import make_context

NOW = 1_614_265_330_000_000  # Thu, 25 Feb 2021 15:02:10 GMT

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Received(NamedTuple):
    """A received request."""

    line: str
    headers: dict[str, str]
    body: bytes


class Server:
    """Serves every connection with `answer` until the block ends."""

    def __init__(self, answer: Answer | bytes, tls: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.received: list[Received] = []
        self.connected = asyncio.Event()
        self.closed = asyncio.Event()  # a client has gone

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, target: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{target}"

    @property
    def is_busy(self) -> bool:
        return any(not task.done() for task in self._tasks)

    async def gone(self) -> None:
        """Return when the connections that are open now have ended."""
        await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connected.set()
        try:
            if isinstance(self._answer, bytes):
                self.received.append(await read_request(reader))
                writer.write(self._answer)
                await writer.drain()
            else:
                await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.closed.set()
            with contextlib.suppress(OSError):
                writer.close()


async def read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
    headers: dict[str, str] = {}
    for name, _, value in (field.partition(": ") for field in fields):
        assert name not in headers, "no header is sent twice"
        headers[name] = value
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(line, headers, body)


def answer(
    status: int | str = 200, headers: str = "", body: bytes = b"", *, framed: bool = True
) -> bytes:
    """Return the bytes of a response; headers are lines that end in CRLF."""
    length = f"content-length: {len(body)}\r\n" if framed else ""
    return f"HTTP/1.1 {status} X\r\n{length}{headers}\r\n".encode() + body


def make_runner(allow: tuple[str, ...] = ("127.0.0.1",), **kwargs: Any) -> HttpRunner:
    return HttpRunner(allow, "schedo/test", now=lambda: NOW, **kwargs)


async def run(
    payload: Any, runner: HttpRunner | None = None, options: Options | None = None
) -> AttemptResult:
    call = make_context(payload, task="http", options=options or Options())
    async with asyncio.timeout(30):
        return await (runner or make_runner())(call)


async def call_server(
    server: Server, runner: HttpRunner | None = None, **payload: Any
) -> AttemptResult:
    return await run({"url": server.url("/hook")} | payload, runner)


class FixedNames:
    """A resolver that knows a few names and counts its queries."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.names[host.partition(".")[0]]
