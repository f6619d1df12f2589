"""One HTTP/1.1 connection, with bounds on its memory and its waits.

A connection carries out one request at a time. Bytes that a client sends ahead stay unparsed, and
the connection receives no more of them until their turn comes; the next request begins when the
client has read the earlier responses. So a connection holds a small, known number of bytes, and one
account adds up those of all (`web/bytes_in_flight.py`). Deadlines are checked once a second.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from schedo.core.limits import SMALL_BODY_BYTES_MAX
from schedo.protocol.problems import KINDS, ProblemKind
from schedo.web import connection_stages as limits
from schedo.web.chunked_body import BadChunk, Chunks
from schedo.web.connection_stages import DEADLINES_S, Stage
from schedo.web.cycle import UNREAD_BYTES_MAX, Exchange
from schedo.web.fallback_responses import render_refusal
from schedo.web.head import BadHead, check_beginning, find_end, parse_head
from schedo.web.outgoing import Outgoing

if TYPE_CHECKING:
    from schedo.web.connections import Connections


class Connection(asyncio.BufferedProtocol):
    """An HTTP/1.1 connection with limits."""

    __slots__ = (
        "__weakref__",
        "_chunks",
        "_exchange",
        "_is_delayed",
        "_is_paused",
        "_is_surplus",
        "_left",
        "_request_bytes",
        "_rest",
        "_shared",
        "_since",
        "_skipped",
        "held",
        "outgoing",
        "stage",
        "transport",
        "undecrypted",
    )

    transport: asyncio.Transport
    outgoing: Outgoing

    def __init__(self, shared: Connections) -> None:
        self._shared = shared
        self.stage = Stage.HEAD
        self._since = shared.loop.time()
        self._rest = b""  # received and not parsed
        self._exchange: Exchange | None = None
        self._chunks: Chunks | None = None
        self._left = 0  # bytes of the body still to be received
        self._is_paused = False
        self._is_delayed = False  # it receives no more of a body until its turn comes
        self._is_surplus = False
        self._request_bytes = 0  # of the current request: its head, and its body if it is small
        self.undecrypted = 0  # of a TLS record that is not complete
        self.held = 0  # bytes in the account

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        # Pause as soon as any byte waits: the next request begins when the client has read all.
        transport.set_write_buffer_limits(high=0)
        self.outgoing = Outgoing(transport)
        self._is_surplus = not self._shared.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not exchange.has_responded:
            exchange.leave()
        self._rest, self._request_bytes, self._chunks, self.undecrypted = b"", 0, None, 0
        self.outgoing.resume()
        self._charge()
        self.stage = Stage.GONE

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to receive into. All connections share it, because none keeps it."""
        is_long = self.stage is Stage.LINGER
        if self.stage is Stage.BODY:
            is_wanted = self._exchange is not None and self._exchange.is_body_wanted
            is_long = is_wanted and (self._chunks is None or not self._chunks.has_tiny_chunks)
        return self._shared.long_buffer if is_long else self._shared.short_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.stage is Stage.GONE:
            return
        if self.stage is Stage.LINGER:
            self._left -= nbytes
            if self._left < -limits.LINGER_BYTES_MAX:
                self.transport.abort()
            return
        data = bytes(self._shared.long_buffer[:nbytes])
        if self.stage is Stage.BODY:
            self._take_body(data)
        elif self.stage is Stage.RESPONSE or self.stage is Stage.TURN:
            self._keep(self._rest + data)
            self._pause()
        else:
            is_first = not self._rest
            if self.stage is Stage.IDLE:
                self.stage, self._since = Stage.HEAD, self._shared.loop.time()
            self._rest += data
            self._advance(is_first)

    def eof_received(self) -> None:
        """Close: a client that closes its half counts as disconnected."""

    def pause_writing(self) -> None:
        self.outgoing.pause(self._shared.loop.time())

    def resume_writing(self) -> None:
        if not self.outgoing.resume():
            return
        self._charge()
        if self._rest and self.stage is Stage.HEAD and not self.transport.is_closing():
            self._since = self._shared.loop.time()
            self._advance(is_first=True)

    # Reading.

    def _keep(self, rest: bytes) -> None:
        """Keep received bytes that are not parsed."""
        self._rest = rest
        self._charge()

    def _pause(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()

    def _advance(self, is_first: bool, is_admitted: bool = False) -> None:
        """Begin the next request if its head is complete and its turn has come."""
        if self.outgoing.is_unread or self.transport.is_closing():
            self._pause()
            return
        self._resume()
        rest = self._rest if self._rest[:1] not in b"\r\n" else self._rest.lstrip(b"\r\n")
        try:
            end = find_end(rest)
            if not end:
                check_beginning(rest, is_first)
                self._keep(rest)
            elif is_admitted or self._shared.share.admits():
                self._rest = b""
                self._begin(rest, end)
            else:
                self.stage, self._rest = Stage.TURN, rest
                self._pause()
                self._shared.begin_later(rest, partial(self._advance, is_first, True))
        except BadHead as bad:
            self.refuse(bad.kind)

    def _begin(self, data: bytes, end: int) -> None:
        """Parse the head, start the application, and pass it the received part of the body."""
        shared = self._shared
        head = parse_head(data[:end])
        head.scope["schedo.defaults"] = shared.default_headers
        head.scope["schedo.transport"] = self.transport
        head.scope["schedo.is_surplus"] = self._is_surplus
        keeps_alive = head.keeps_alive and not (shared.is_draining or self._is_surplus)
        exchange = Exchange(self, head.scope, keeps_alive, head.expects_continue)
        self._exchange = exchange
        size = end + head.body_bytes if head.body_bytes <= SMALL_BODY_BYTES_MAX else end
        self._request_bytes = size if size > limits.TINY_REQUEST_BYTES else 0
        self._left = head.body_bytes
        self._chunks = Chunks() if head.is_chunked else None
        if head.body_bytes or head.is_chunked:
            self.stage, self._since = Stage.BODY, shared.loop.time()
            self._charge()
            if end < len(data):
                self._take_body(data[end:])
                if self.stage is Stage.LINGER:
                    return
        else:
            exchange.add([], is_complete=True)  # an application may call receive() all the same
            self._end_body(data[end:])
        shared.start(exchange.run(shared.app))

    def _take_body(self, data: bytes) -> None:
        exchange = self._exchange
        assert exchange is not None
        if self._chunks is None:
            parts, rest = [data[: self._left]], data[self._left :]
            self._left -= len(parts[0])
            is_complete = self._left == 0
        else:
            try:
                parts, rest = self._chunks.feed(data)
            except BadChunk:
                self.refuse(KINDS["bad-http"])
                return
            is_complete = self._chunks.is_complete
            if self._chunks.has_tiny_chunks:
                self._delay_body()
        exchange.add(parts, is_complete)
        if is_complete:
            self._end_body(rest)
        else:
            self._expect_more(exchange, len(data))

    def _expect_more(self, exchange: Exchange, received: int) -> None:
        """Decide, after a part of a body, whether to read on, to pause or to refuse the request."""
        if exchange.has_responded:
            # A chunked body can have any length, so bound the part that is skipped.
            self._skipped += received
            if self._skipped > limits.SKIPPED_BYTES_MAX:
                self._linger()
        elif exchange.is_body_wanted:
            if exchange.unread_bytes > UNREAD_BYTES_MAX:
                self._pause()
        else:
            self._charge()
            self._pause()

    def _end_body(self, rest: bytes) -> None:
        """Wait for the response, which may have been sent already."""
        self._chunks = None
        self.stage = Stage.RESPONSE
        self._keep(rest)
        if self._exchange is None or self._exchange.has_responded:
            self._end_exchange()
        elif rest:
            self._pause()

    # The response: the methods of Peer.

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.outgoing.write(data)
            if self.outgoing.is_unread:
                self._charge()

    async def flushed(self) -> None:
        await self.outgoing.flushed()

    def want_body(self) -> None:
        if self.stage is Stage.BODY and not self._is_delayed:
            self._resume()

    def _delay_body(self) -> None:
        """Receive more of a body of tiny chunks when the loop has time for it."""
        self._is_delayed = True
        self._pause()
        self._shared.share.begin_later(self._end_delay)

    def _end_delay(self) -> None:
        self._is_delayed = False
        self.want_body()

    def may_stay_open(self) -> bool:
        """Return whether another request can follow: not after a long unread body."""
        is_short = self._chunks is not None or self._left <= limits.SKIPPED_BYTES_MAX
        is_last = self._shared.is_leaving and not self._rest
        return not is_last and (self.stage is not Stage.BODY or is_short)

    def end_response(self) -> None:
        exchange = self._exchange
        if exchange is None or self.transport.is_closing():
            return
        self._shared.requests += 1
        if not exchange.keeps_alive:
            if self.stage is Stage.RESPONSE and not self._rest:
                self.transport.close()
            else:
                self._linger()
        elif self.stage is Stage.RESPONSE:
            self._end_exchange()
        else:  # skip the rest of the body
            self._skipped = 0
            self._resume()

    def abort(self) -> None:
        self.transport.abort()

    def _end_exchange(self) -> None:
        """Continue with the next request."""
        self._exchange = None
        self._request_bytes = 0
        self._since = self._shared.loop.time()
        if self._rest:
            self.stage = Stage.HEAD
            self._advance(is_first=True)
        else:
            self.stage = Stage.IDLE
            self._charge()
            self._resume()

    # Ending.

    def refuse(self, kind: ProblemKind) -> None:
        """Respond instead of the application, unless it may have acted already, and close."""
        if self.transport.is_closing() or self.stage is Stage.LINGER:
            return
        exchange = self._exchange
        if exchange is not None and not exchange.withdraw():
            if exchange.has_responded:  # while its body is skipped
                self._linger()
            else:
                self.transport.close()
            return
        self.write(render_refusal(kind))
        self._linger()

    def _linger(self) -> None:
        """Close after the client has closed; drop the bytes that it sends until then.

        Closing at once, with unread bytes, would reset the connection, and a client that sends its
        whole request before it reads would lose the response.
        """
        self.stage, self._since = Stage.LINGER, self._shared.loop.time()
        self._left = min(self._left, limits.LINGER_BODY_BYTES_MAX)
        self._chunks = None
        self._request_bytes = 0
        self._keep(b"")
        self._resume()
        self.transport.write_eof()

    def shed(self) -> None:
        """Close at once to free the memory of this connection."""
        self.stage = Stage.GONE
        self._rest = b""
        self._shared.charge(self, -self.held)
        self.held = 0
        self.transport.abort()

    def shutdown(self) -> None:
        """Close after the current request; a new connection still gets its first response."""
        if self.stage is Stage.LINGER or self.stage is Stage.IDLE:
            self.transport.close()
        elif self._exchange is not None:
            self._exchange.keeps_alive = False

    # Deadlines and memory.

    def check_deadline(self, now: float) -> None:
        """Close the connection if the current stage has reached its deadline."""
        waited_s = now - self._since
        is_unread = self._shared.is_draining and self.stage is Stage.HEAD
        self._charge()
        if self.outgoing.is_unread:
            if self.outgoing.is_too_slow(now):
                self.transport.abort()
        elif waited_s > DEADLINES_S.get(self.stage, waited_s):
            self._end_stage()
        elif is_unread and waited_s > limits.FIRST_REQUEST_GRACE_S:
            self.transport.close()

    def _end_stage(self) -> None:
        """End the stage that has reached its deadline."""
        if self.stage is Stage.LINGER:
            self.transport.abort()
        elif self.stage is Stage.IDLE:
            self.transport.close()
        else:
            self.refuse(KINDS["request-timeout"])

    @property
    def active(self) -> Exchange | None:
        """The exchange that the application acts on, after its body has arrived, or None."""
        exchange = self._exchange if self.stage is Stage.RESPONSE else None
        return exchange if exchange is not None and exchange.is_active else None

    @property
    def has_sent_ahead(self) -> bool:
        """Whether it holds received bytes, and not only an unread response."""
        unparsed = self.held - self.outgoing.kept_bytes
        return unparsed > limits.ORDINARY_REQUEST_BYTES or bool(self._rest)

    def idle_since(self) -> float | None:
        """Return since when the connection is idle; None if it is not."""
        is_idle = self.stage is Stage.IDLE or (self.stage is Stage.HEAD and not self._rest)
        return self._since if is_idle and not self.outgoing.is_unread else None

    def _charge(self) -> None:
        """Update the account."""
        held = len(self._rest) + self._request_bytes + self.outgoing.kept_bytes + self.undecrypted
        exchange = self._exchange
        if exchange is not None and not exchange.is_body_wanted:  # so no claim counts it
            held += exchange.unread_bytes
        if held != self.held and self.stage is not Stage.GONE:
            change, self.held = held - self.held, held
            self._shared.charge(self, change)
