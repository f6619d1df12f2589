"""Connections from the old process of an upgrade to the server that has its store now.

They do not use the address of the server, and so no token and no room among its clients. The old
process makes a pair of sockets and sends one of them over the control socket. If the new server
dies, the next connection goes to the server that follows it.
"""

from __future__ import annotations

import asyncio
import socket

from schedo.errors import SchedoError
from schedo.handover import socket_file
from schedo.handover.client import introduce
from schedo.handover.link import Link
from schedo.handover.messages import ServeHttp

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpWay:
    """Opens connections to the server that listens on the control socket of a store."""

    def __init__(self, store_path: str, schema: int, worker: str) -> None:
        """worker: the name by which this process ends its attempts."""
        self._path = store_path + socket_file.SUFFIX
        self._schema, self._worker = schema, worker
        self._link: Link | None = None
        self._connecting = asyncio.Lock()

    async def open(self, *, is_trusted: bool) -> Streams:
        """Return a new connection; raise OSError if there is no server."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                await self._send(ServeHttp(is_trusted), theirs.fileno())
            except BaseException:
                ours.close()
                raise
        return await asyncio.open_unix_connection(sock=ours)

    async def _send(self, message: ServeHttp, descriptor: int) -> None:
        async with self._connecting:
            if self._link is not None:
                if self._link.is_alive:
                    self._link.send(message, [descriptor])
                    return
                self.close()
            self._link = link = Link(socket_file.connect(self._path))
            try:
                await introduce(link, "predecessor", self._schema, self._worker)
            except SchedoError as error:
                raise ConnectionRefusedError(str(error)) from error
            link.send(message, [descriptor])

    def close(self) -> None:
        """Close the link; the open connections stay."""
        if self._link is not None:
            self._link.close()
            self._link = None
