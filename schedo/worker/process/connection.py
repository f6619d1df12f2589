"""The connection between a server and a child process: a socket that carries frames."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from schedo.protocol.frames import BadFrame, FrameReader, FromChild, FromServer, encode_frame

_READ_BYTES = 65_536
_REST_READS_MAX = 1_024  # many times the size of a socket's buffer
_F = TypeVar("_F")


class FrameConnection(asyncio.Protocol, Generic[_F]):
    """One end of the socket. `on_closed` is called once, with the protocol error or None.

    An asyncio transport closes when a write fails, and drops the bytes that it has not read yet.
    The other end may have sent results before it ended, so the connection keeps a second descriptor
    and reads the rest from it.
    """

    def __init__(
        self,
        reader: FrameReader[_F],
        on_frame: Callable[[_F], None],
        on_closed: Callable[[str | None], None],
        on_room: Callable[[bool], None] = lambda has_room: None,
    ) -> None:
        """on_room: called when the other end reads too slowly, with False, and then with True."""
        self._reader = reader
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._on_room = on_room
        self._transport: asyncio.Transport | None = None
        self._rest: socket.socket | None = None
        self._has_finished = False
        self._fault: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        descriptor = transport.get_extra_info("socket").fileno()
        self._rest = socket.socket(fileno=os.dup(descriptor))

    def data_received(self, data: bytes) -> None:
        if self._fault is not None:
            return
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except BadFrame as error:
            self._fault = str(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._read_rest()
        self._on_closed(self._fault)

    def _read_rest(self) -> None:
        assert self._rest is not None, "the connection was made"
        with self._rest as rest, contextlib.suppress(OSError):  # empty, or reset by the other end
            for _ in range(_REST_READS_MAX):
                data = rest.recv(_READ_BYTES)
                if not data:
                    break
                self.data_received(data)

    def pause_writing(self) -> None:
        self._on_room(False)

    def resume_writing(self) -> None:
        self._on_room(True)

    def send(self, frame: FromChild | FromServer) -> None:
        """Write the frame; do nothing if the connection is closed."""
        if self._transport is not None and not self._has_finished:
            self._transport.write(encode_frame(frame))

    def write(self, frame: bytes) -> None:
        """Write an encoded frame; do nothing if the connection is closed."""
        if self._transport is not None and not self._has_finished:
            self._transport.write(frame)

    def finish(self) -> None:
        """Close this direction; the other end closes the connection when it has read everything."""
        if self._transport is not None and not self._has_finished:
            self._has_finished = True
            self._transport.write_eof()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()
