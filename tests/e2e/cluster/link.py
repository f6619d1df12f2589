"""A way between two processes of a run, which the run can cut: a TCP proxy on loopback.

A server reaches PostgreSQL through one, and the other servers reach it through another. While a
way is cut, nothing is lost and nothing arrives, as on a network whose packets are dropped: what was
sent comes later, if the connection still exists then.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

from tests.passes import one_pass

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Direction = Literal["there", "back", "both"]

CHUNK_BYTES = 65_536
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Link:
    """A listening port whose connections lead to one target."""

    def __init__(self, connect: Callable[[], Awaitable[Streams]]) -> None:
        """connect: opens a connection to the target."""
        self._connect = connect
        self._there, self._back = asyncio.Event(), asyncio.Event()  # set while the way is open
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._server: asyncio.Server | None = None
        self.port = 0
        self.heal()

    async def open(self, port: int = 0) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self, direction: Direction = "both") -> None:
        """Hold what is sent from the clients (there), from the target (back), or both."""
        if direction != "back":
            self._there.clear()
        if direction != "there":
            self._back.clear()

    def heal(self) -> None:
        """Pass everything on again, first of all what was held."""
        self._there.set()
        self._back.set()

    def reset_after_request(self) -> None:
        """Let the next request pass on the busiest connection, and reset it before the response."""
        if self._connections:
            max(self._connections.values(), key=lambda each: each.bytes).is_doomed = True

    def reset(self) -> None:
        """Reset all connections."""
        for each in self._connections.values():
            each.reset()

    def stop_listening(self) -> None:
        """End the listener; connections stay."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """End the listener and all connections."""
        self.stop_listening()
        for _ in range(3):  # a connection that has just been accepted begins, and is ended then
            await one_pass()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection((reader, writer))
        self._connections[task] = connection
        try:
            await self._there.wait()
            target = await self._connect()
            connection.writers.append(target[1])
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(connection, reader, target[1], self._there))
                group.create_task(self._pass(connection, target[0], writer, self._back))
        except* _Ended:
            connection.close()
        except* OSError:
            pass
        finally:
            connection.reset()
            self._connections.pop(task, None)

    async def _pass(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        way: asyncio.Event,
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await way.wait()
            connection.bytes += len(data)
            writer.write(data)
            await writer.drain()
            if connection.is_doomed and way is self._there:
                await way.wait()
                raise ConnectionResetError
        await way.wait()
        raise _Ended


class _Ended(Exception):
    """A direction of a connection has ended, and the other one ends with it."""


class _Connection:
    def __init__(self, client: Streams) -> None:
        self.writers = [client[1]]
        self.bytes = 0
        self.is_doomed = False

    def close(self) -> None:
        """Close after what was sent has left, as a server that answers and closes."""
        for writer in self.writers:
            writer.close()

    def reset(self) -> None:
        for writer in self.writers:
            if writer.is_closing():
                continue
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            writer.transport.abort()
