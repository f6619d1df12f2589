"""A client of `GET /v1/events` that connects again by itself, as a browser does.

It notes what it sees; the checker looks for lost events and for silence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from itertools import cycle

from tests.e2e.takeover.evidence import ClientLog, StreamEvent
from tests.e2e.takeover.raw_http import read_chunks

RETRY_S = 0.1


class EventStream:
    """One client that follows all topics."""

    def __init__(self, ports: Sequence[int], log: ClientLog) -> None:
        """ports: of the servers; each connection reaches the next one."""
        self._ports = cycle(ports)
        self._log = log
        self._seen: list[StreamEvent] = []
        log.streams.append(self._seen)
        self._event = asyncio.Event()
        self._stage = ""  # for the message about a silence

    async def follow(self) -> None:
        """Follow the stream until the task is cancelled."""
        self._note("begin")
        try:
            while True:
                await self._read_once()
                await asyncio.sleep(RETRY_S)
        finally:
            self._note(f"end, {self._stage}")

    async def see_next(self) -> None:
        """Wait for the next event."""
        self._event.clear()
        await self._event.wait()

    def _note(self, name: str, ident: str = "") -> None:
        self._seen.append(StreamEvent(name, ident, time.monotonic()))
        if ident:
            self._event.set()

    async def _read_once(self) -> None:
        """Connect, and note the events until the response ends or breaks."""
        self._log.requests += 1
        writer = None
        try:
            port = next(self._ports)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(self._render())
            self._stage = f"waits for the head of {port}"
            head = await reader.readuntil(b"\r\n\r\n")
            self._stage = f"reads the body of {port}"
            if (status := int(head.split()[1])) != 200:
                self._log.count_error(f"{status} of an event stream")
                return
            if b"chunked" not in head.lower():
                return  # it has ended before its first piece: its length is 0
            async for text in _events(reader):
                fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
                if "event" in fields:
                    self._note(fields["event"], fields.get("id", ""))  # none: of another server
        except ConnectionRefusedError:
            self._log.refused += 1
        except (OSError, asyncio.IncompleteReadError):
            self._log.broken += 1
        finally:
            if writer is not None:
                writer.transport.abort()

    def _render(self) -> bytes:
        last = next((each.ident for each in reversed(self._seen) if each.ident), "")
        known = f"last-event-id: {last}\r\n" if last else ""
        return f"GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n{known}\r\n".encode()


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield each event of a body; raise IncompleteReadError if the body has no end."""
    text = b""
    async for chunk in read_chunks(reader):
        *events, text = (text + chunk).split(b"\n\n")
        for event in events:
            yield event.decode()
