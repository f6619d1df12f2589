"""TLS between a socket and the connection of a client.

The event loop's own TLS would hide from the connection what it must count and end: a client in its
handshake, the bytes of a record that is not complete, and what the client has not read. So this
class stands between the two. To the event loop it is the protocol of the socket. To the connection
it is the transport, from the first moment on: a client in its handshake is a connection that waits
for a head, with the same deadline and the same place among all others. OpenSSL does the rest, on
buffers in memory.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast

from schedo.protocol.problems import KINDS
from schedo.web.connection import Connection
from schedo.web.connection_stages import Stage

if TYPE_CHECKING:
    from schedo.web.connections import Connections

HANDSHAKE_BYTES_MAX = 32_768  # from the client; the largest hello of a browser has 2 KiB
_HANDSHAKE_RECORD = 22  # the first byte of each client that speaks TLS; RFC 8446, 5.1
_ENDED = (Stage.LINGER, Stage.GONE)


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """The TLS of one connection."""

    __slots__ = (
        "_connection",
        "_incoming",
        "_is_open",
        "_is_plain",
        "_outgoing",
        "_received",
        "_shared",
        "_socket",
        "_tls",
    )

    _socket: asyncio.Transport

    def __init__(self, shared: Connections, context: ssl.SSLContext) -> None:
        super().__init__()
        self._shared = shared
        self._connection: Connection | None = Connection(shared)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False  # the handshake is complete
        self._is_plain = False  # the client speaks HTTP without TLS, and gets one refusal
        self._received = 0  # bytes of the handshake, or of the record that is not complete

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        assert self._connection is not None
        self._connection.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        # Without this reference the two are freed without the garbage collector.
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer of the connection, which is free again after each part."""
        assert self._connection is not None
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        connection = self._connection
        if connection is None:
            return
        if connection.stage in _ENDED:
            connection.buffer_updated(nbytes)  # which only counts them
            return
        data = self._shared.long_buffer[:nbytes]
        if not (self._is_open or self._received) and data[0] != _HANDSHAKE_RECORD:
            self._is_plain = True
            connection.refuse(KINDS["tls-required"])
            return
        self._incoming.write(data)
        self._received += nbytes
        if self._is_open:
            self._decrypt(connection)
        else:
            self._shake_hands_in_turn()

    def eof_received(self) -> None:
        """Close: a client that closes its half counts as disconnected."""

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    # The handshake.

    def _shake_hands_in_turn(self) -> None:
        """Take a step of the handshake when the event loop has time: a signature takes long."""
        if self._received > HANDSHAKE_BYTES_MAX:
            self.abort()
        elif self._shared.share.admits():
            self._shake_hands()
        else:
            self.pause_reading()
            self._shared.share.begin_later(self._continue)

    def _continue(self) -> None:
        if not self.is_closing():
            self.resume_reading()
            self._shake_hands()

    def _shake_hands(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            connection.undecrypted = self._received
            self._flush()
        except ssl.SSLError:
            self._flush()  # the alert, which names the reason
            self._socket.close()
        else:
            self._is_open = True
            self._received = self._incoming.pending
            self._decrypt(connection)

    # The bytes.

    def _decrypt(self, connection: Connection) -> None:
        """Give the connection what has arrived.

        It also takes what comes after it has paused: there is no more than one part.
        """
        try:
            while connection.stage not in _ENDED and not self.is_closing():
                buffer = connection.get_buffer(-1)
                size = cast(int, self._tls.read(len(buffer), buffer))
                if not size:  # the client has ended the TLS
                    self.close()
                    return
                self._received = self._incoming.pending
                connection.buffer_updated(size)
        except ssl.SSLWantReadError:
            connection.undecrypted = self._received
            self._flush()
        except ssl.SSLError:
            self._flush()
            self._socket.close()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._socket.is_closing():
            self._socket.write(data)

    def _end_tls(self) -> None:
        """Tell the client that nothing follows, so that it can tell this from an attack."""
        if self._is_open:
            self._is_open = False
            try:
                self._tls.unwrap()
            except ssl.SSLError:  # it waits for the client's answer, which nothing here needs
                self._flush()

    # The transport of the connection.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_plain:
            self._socket.write(data)
        elif self._is_open:
            try:
                self._tls.write(data)
            except ssl.SSLError:
                self.abort()
                return
            self._flush()

    def write_eof(self) -> None:
        """Send nothing more; without a handshake there is nothing that the client could read."""
        if not (self._is_open or self._is_plain):
            self.abort()
            return
        self._end_tls()
        self._socket.write_eof()

    def close(self) -> None:
        self._end_tls()
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)
