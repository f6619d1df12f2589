"""One HTTP/2 connection of gRPC, with bounds on its memory and its waits.

The library h2 has the rules of HTTP/2 and does no I/O. Here are the I/O, the streams, and the
limits: a client that sends more than it may, reads too slowly, or does not answer loses its
connection. See docs/adr/0055.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from schedo.grpc.stream import FIRST_HEADERS, WINDOW_BYTES, Stream
from schedo.protocol.problems import PROBLEM_TYPE, get_kind, render_kind

if TYPE_CHECKING:
    from schedo.grpc.server import Shared

log = logging.getLogger("schedo.grpc")

STREAMS_MAX = 100  # at a time, as most servers have it
HEADERS_BYTES_MAX = 16_384
_WINDOW_BYTES = 1_048_576  # of the connection
_LAST_ID = 2**31 - 1
FRAME_BYTES_MAX = 16_384 + 9  # with its head; the smallest limit that HTTP/2 permits
PING_S = 60.0
START_S = 10.0  # for the first bytes of HTTP/2
STALL_S = 30.0  # for a client to read something that waits
RESETS_MAX = 100  # calls in a second that a client begins and leaves
_LEAVE, _ALIVE = b"schedo:1", b"schedo:2"  # what pings carry
_CONFIG = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


_PREFACE = b"PRI * HTTP/2.0\r\n"
_REFUSAL = render_kind(get_kind("grpc-port"))
_NOT_HTTP_2 = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
    b"\r\n%b" % (PROBLEM_TYPE, len(_REFUSAL), _REFUSAL)
)


class Connection(asyncio.Protocol):
    """A connection of one client."""

    transport: asyncio.Transport

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.in_flight = shared.in_flight
        self._h2 = H2Connection(_CONFIG)
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADERS_BYTES_MAX,
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            },
        )
        self._h2.decoder.max_header_list_size = HEADERS_BYTES_MAX
        self.streams: dict[int, Stream] = {}
        self.held = 0  # bytes without a claim
        self._sending: dict[Stream, None] = {}  # those with something to send, in their order
        self._is_flushing = False
        self._is_paused = False  # the client does not read
        self._is_leaving = False
        self._has_heard_leave = False  # the client begins no more calls
        self._is_closed = False
        self._unopened = 0  # received bytes for which the client got no new window
        now = shared.loop.time()
        self._began_at, self._read_at = now, now  # read: the client has read something
        self._has_received = False
        self._received_any = False
        self._missed = 0  # pings that the client has not answered
        self._ping_s = PING_S
        self._ping_at = now + START_S
        self._resets, self._resets_since = 0, now

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        if not self._shared.admit(self):
            transport.abort()
            return
        # It is sent with the first answer: a client of HTTP/1 gets one that it can read.
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES)

    def data_received(self, data: bytes) -> None:
        if not self._received_any and not _PREFACE.startswith(data[: len(_PREFACE)]):
            self.transport.write(_NOT_HTTP_2)
            self.transport.close()
            return
        self._has_received = self._received_any = True
        try:
            for event in self._h2.receive_data(data):
                self._handle(event)
            # h2 refuses a frame that is too long only when the whole of it is there.
            if len(self._h2.incoming_buffer._data) > FRAME_BYTES_MAX:
                raise ProtocolError("a frame is too long")
        except ProtocolError as error:
            log.debug("a client breaks the rules of HTTP/2: %s", error)
            self._flush()
            self.transport.close()
            return
        if self._sending:
            self._send_all()
        self._flush()

    def eof_received(self) -> None:
        """Close: a client that closes its half counts as disconnected."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._shared.forget(self)
        self._sending.clear()
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.leave()

    def pause_writing(self) -> None:
        """Send and receive no more: a client that does not read gets no answers to pings either."""
        self._is_paused = True
        self._read_at = self._shared.loop.time()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        if not self._is_closed:
            self.transport.resume_reading()
            self._send_all()
            self._flush()

    # Events of HTTP/2.

    def _handle(self, event: Event) -> None:
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def _begin(self, event: RequestReceived) -> None:
        stream = Stream(self, event.stream_id, dict(event.headers))
        self.streams[stream.id] = stream
        self._shared.begin(stream)

    def _complete(self, event: StreamEnded) -> None:
        if event.stream_id in self.streams:
            self.streams[event.stream_id].complete()

    def _note_reading(self, event: Event) -> None:
        self._read_at = self._shared.loop.time()

    def _take_answer(self, event: PingAckReceived) -> None:
        self._has_heard_leave |= event.ping_data == _LEAVE
        self._close_if_done()

    def _close(self, event: ConnectionTerminated) -> None:
        """Close at once: h2 sends nothing any more, and the client expects nothing."""
        self.transport.close()

    def _take_data(self, event: DataReceived) -> None:
        size = event.flow_controlled_length
        self._unopened += size
        if self._unopened > _WINDOW_BYTES // 4:
            self._h2.increment_flow_control_window(self._unopened)
            self._unopened = 0
        stream = self.streams.get(event.stream_id)
        if stream is not None and not stream.has_ended:
            stream.add(event.data, size)

    def _forget_reset(self, event: StreamReset) -> None:
        """Let the call of a stream end, and the connection of a client that does that all day."""
        stream = self.streams.pop(event.stream_id, None)
        if stream is None:
            return
        self._sending.pop(stream, None)
        stream.leave()
        now = self._shared.loop.time()
        if now - self._resets_since > 1.0:
            self._resets, self._resets_since = 0, now
        self._resets += 1
        if self._resets > RESETS_MAX:
            log.warning("a client leaves its calls too often; its connection is closed")
            self.transport.abort()
        self._close_if_done()

    # For streams.

    def open_window(self, stream: Stream, size: int) -> None:
        """Let the client send this many bytes more on the stream."""
        if not self._is_closed and not stream.is_complete:
            self._h2.increment_flow_control_window(size, stream.id)
            self._flush_soon()

    def charge(self, change: int) -> None:
        """Change the number of bytes that the connection holds without a claim."""
        self.held += change
        self._shared.charge(self, change)

    def begin_response(self, stream: Stream) -> None:
        """Send the first headers."""
        if not self._is_closed:
            self._h2.send_headers(stream.id, FIRST_HEADERS)

    def send_soon(self, stream: Stream) -> None:
        """Send what the stream has, as the windows of the client permit."""
        if self._is_closed:
            return
        if not self._sending:
            self._read_at = self._shared.loop.time()
        self._sending[stream] = None
        self._send_all()
        self._flush_soon()

    def expect_life(self, interval_s: float) -> None:
        """Close the connection if nothing arrives for three such intervals."""
        self._ping_s = min(self._ping_s, interval_s)
        self._ping_at = min(self._ping_at, self._shared.loop.time() + interval_s)

    # Sending.

    def _send_all(self) -> None:
        for stream in list(self._sending):
            if self._is_paused:
                return
            self._send(stream)

    def _send(self, stream: Stream) -> None:
        """Give to h2 what the windows permit; forget the stream when that was its end."""
        while stream.outgoing:
            room = min(
                self._h2.local_flow_control_window(stream.id), self._h2.max_outbound_frame_size
            )
            if room <= 0 or self._is_paused:
                return
            part = stream.outgoing[0]
            self._h2.send_data(stream.id, part[:room])
            if room < len(part):
                stream.outgoing[0] = part[room:]
                self._flush()  # so that the transport says when it has enough
            else:
                stream.outgoing.pop(0)
        self._sending.pop(stream, None)
        stream.note_sent()
        if stream.trailers is not None:
            self._end_stream(stream, stream.trailers)

    def _end_stream(self, stream: Stream, trailers: list[tuple[bytes, bytes]]) -> None:
        self._h2.send_headers(stream.id, trailers, end_stream=True)
        if not stream.is_complete:  # the client need not send the rest
            self._h2.reset_stream(stream.id, 0)
        stream.drop_received()
        self.streams.pop(stream.id, None)
        self._flush_soon()
        self._close_if_done()

    def _flush_soon(self) -> None:
        """Send once in this turn of the loop what all calls have."""
        if not self._is_flushing:
            self._is_flushing = True
            self._shared.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if not self._is_closed:
            data = self._h2.data_to_send()
            if data:
                self.transport.write(data)

    # The end, and its signs.

    def leave(self) -> None:
        """Tell the client to begin its next call elsewhere; close after the last one."""
        if self._is_closed or self._is_leaving:
            return
        self._is_leaving = True
        # h2 would send nothing any more after its own close_connection().
        self._flush()
        self._say_goodbye(_LAST_ID)
        # Before it answers, the client may begin calls, because it does not know yet.
        self._h2.ping(_LEAVE)
        self._flush()

    def _close_if_done(self) -> None:
        if self._has_heard_leave and not self.streams and not self._is_closed:
            self._flush()
            # A client repeats a call that comes nevertheless: it learns that none saw it.
            self._say_goodbye(self._h2.highest_inbound_stream_id)
            self.transport.close()

    def _say_goodbye(self, last_id: int) -> None:
        frame = GoAwayFrame(0, last_stream_id=last_id, error_code=0)
        self.transport.write(frame.serialize())

    def check(self, now: float) -> None:
        """Abort the connection if its client does not read or is not there; called each second."""
        is_late = not self._received_any and now - self._began_at > START_S
        is_stalled = (self._is_paused or self._sending) and now - self._read_at > STALL_S
        if is_late or is_stalled:
            self.transport.abort()
        elif now >= self._ping_at:
            self._ping_at = now + self._ping_s
            self._ping()

    def _ping(self) -> None:
        """Ping a silent client, and abort if it was so before.

        The interval is counted anew with each call, so a server that was suspended for a while
        does not take its own silence for that of its clients.
        """
        self._missed = 0 if self._has_received else self._missed + 1
        self._has_received = False
        if self._missed > 1:
            log.info("a client does not answer; its connection is closed")
            self.transport.abort()
        elif self._missed:
            self._h2.ping(_ALIVE)
            self._flush()


_HANDLERS: dict[type[Event], Callable[[Connection, Any], None]] = {
    RequestReceived: Connection._begin,
    DataReceived: Connection._take_data,
    StreamEnded: Connection._complete,
    StreamReset: Connection._forget_reset,
    WindowUpdated: Connection._note_reading,
    RemoteSettingsChanged: Connection._note_reading,
    PingAckReceived: Connection._take_answer,
    ConnectionTerminated: Connection._close,
}
