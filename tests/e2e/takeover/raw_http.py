"""An HTTP client that counts what a client feels: refused connects, broken requests, errors."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any, NamedTuple

from tests.e2e.takeover.evidence import ClientLog

RESPONSE_S = 30.0
ATTEMPTS = 10  # of a request that a busy server answers with 503


class Broken(Exception):
    """The connection ended, or no response came; the request may have been carried out."""


class Reply(NamedTuple):
    """A response whose body is JSON."""

    status: int
    body: Any


class Client:
    """One keep-alive connection to a server, opened again when it has ended.

    Of the servers of a cluster, each connection reaches the next one.
    """

    def __init__(self, ports: Sequence[int], log: ClientLog) -> None:
        self._ports = cycle(random.sample(ports, len(ports)))
        self._log = log
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: object = None, key: str = "") -> Reply:
        """Send a request. Raise Broken if the connection ends before the response."""
        self._log.requests += 1
        try:
            async with asyncio.timeout(RESPONSE_S):
                reply = await self._exchange(_render(method, path, body, key))
        except ConnectionRefusedError:
            self._log.refused += 1
            await asyncio.sleep(0.02)
            raise Broken from None
        except TimeoutError:
            self._log.unfinished += 1
            self.close()
            raise Broken from None
        except (OSError, asyncio.IncompleteReadError):
            self._log.broken += 1
            self.close()
            raise Broken from None
        if reply.status >= 500:
            self._log.count_error(f"{reply.status} {reply.body.get('code')}")
            await asyncio.sleep(0.02)
        return reply

    async def ask_again(self, method: str, path: str, body: object) -> Reply:
        """Send a request that may be repeated until a server has carried it out."""
        reply: Reply | None = None
        for _ in range(ATTEMPTS):
            with suppress(Broken):
                reply = await self.ask(method, path, body)
                if reply.status < 400:
                    return reply
                if reply.status < 500:
                    break
        raise RuntimeError(f"{method} {path}: {reply}")

    async def _exchange(self, request: bytes) -> Reply:
        """Send on the kept connection; if the server has closed it meanwhile, on a new one."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", next(self._ports))
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        if "transfer-encoding" in fields:
            text = b"".join([chunk async for chunk in read_chunks(reader)])
        else:
            text = await reader.readexactly(int(fields.get("content-length", 0)))
        if fields.get("connection") == "close":
            self.close()
        return Reply(int(head.split()[1]), json.loads(text) if text else None)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield each chunk of a body; raise IncompleteReadError if the body has no end."""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)


def _render(method: str, path: str, body: object, key: str) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(text)}"]
    if text:
        head.append("content-type: application/json")
    if key:
        head.append(f'idempotency-key: "{key}"')
    return "\r\n".join([*head, "", ""]).encode() + text
