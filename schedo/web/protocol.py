"""One HTTP connection, with the limits that uvicorn and httptools lack.

Measured without them: one connection that sends headers for ever takes a gigabyte in seconds, and
silent connections stay for ever. Here the request line and the headers have a byte budget, headers
and body each have a deadline (watched by the server once a second, so that requests pay no timers),
and connections are counted.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from schedo.errors import Unavailable
from schedo.web.cycle import WholeAnswerCycle
from schedo.web.messages import answer_error, send_answer
from schedo.web.signals import Signal
from schedo.wire.problems import KINDS, PROBLEM_TYPE, ProblemKind, render_kind

URL_BYTES_MAX = 8_192
HEAD_BYTES_MAX = 32_768
HEADERS_MAX = 100
HEAD_DEADLINE_S = 10.0
KEEP_ALIVE_S = 60.0
BODY_DEADLINE_S = 30.0
_REFUSED_GRACE_S = 1.0
_DISCARDED_BYTES_MAX = 1_048_576
FIRST_REQUEST_GRACE_S = 1.0  # while draining: for a connection that has not sent anything yet


class Stage(Enum):
    """What the connection waits for from the client."""

    IDLE = "idle"  # nothing, or the next request
    HEAD = "head"
    BODY = "body"
    REFUSED = "refused"  # that it reads our refusal and closes


class LimitPassed(Exception):
    """Stops the parser; httptools keeps it to itself."""


class _Pipeline(list[Any]):
    """What waits for its turn: a deque that takes little while it is empty, as it nearly always is.

    Reading pauses as soon as something waits, so it stays short.
    """

    def appendleft(self, item: Any) -> None:
        self.insert(0, item)


class ConnectionState(ServerState):
    """What the connections of one server share."""

    def __init__(self, connections_max: int) -> None:
        super().__init__()
        self.connections_max = connections_max
        self.is_draining = False
        self.emptied = asyncio.Event()


class LimitedProtocol(HttpToolsProtocol):
    """An HTTP/1.1 connection with limits."""

    server_state: ConnectionState
    cycle: WholeAnswerCycle

    def __init__(
        self,
        config: Config,
        server_state: ConnectionState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._stage = Stage.HEAD
        self._since = self.loop.time()
        self._raw_bytes = 0  # of the head, as they came in
        self._begun = 0  # heads that began in what came last
        self._field_bytes = 0  # of its headers, as the parser found them
        self._refusal = KINDS["bad-http"]
        self.pipeline = _Pipeline()  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow._is_writable_event = Signal(True)  # type: ignore[assignment]
        state = self.server_state
        if len(state.connections) > 2 * state.connections_max:
            transport.abort()
        elif len(state.connections) > state.connections_max:
            self.app = _answer_too_many

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.server_state.connections:
            self.server_state.emptied.set()

    def data_received(self, data: bytes) -> None:
        if self._stage is Stage.REFUSED:
            self._raw_bytes += len(data)
            if self._raw_bytes > _DISCARDED_BYTES_MAX:
                self.transport.abort()
            return
        is_inside_body = self._stage is Stage.BODY
        if self._stage is Stage.IDLE:
            self._stage, self._since = Stage.HEAD, self.loop.time()
        self._begun = 0
        super().data_received(data)
        if self._stage is Stage.HEAD:
            self._count_head(len(data), is_inside_body)

    def _count_head(self, size: int, is_inside_body: bool) -> None:
        """Count what came of an incomplete head: a header without end reaches no callback."""
        if self._begun == 0:
            self._raw_bytes += size
        elif self._begun == 1 and not is_inside_body:
            self._raw_bytes = size
        # Else the head begins somewhere inside of what came; its bytes count from the next on.
        if self._raw_bytes > HEAD_BYTES_MAX:
            self._refuse(KINDS["headers-too-large"])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage, self._since = Stage.HEAD, self.loop.time()
        self._raw_bytes = self._field_bytes = 0
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > URL_BYTES_MAX:
            self._refusal = KINDS["uri-too-long"]
            raise LimitPassed

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._field_bytes += len(name) + len(value)
        if self._field_bytes > HEAD_BYTES_MAX or len(self.headers) > HEADERS_MAX:
            self._refusal = KINDS["headers-too-large"]
            raise LimitPassed

    def on_headers_complete(self) -> None:
        self._complete_scope()
        self._stage, self._since = Stage.BODY, self.loop.time()
        before = self.cycle
        self.cycle = WholeAnswerCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=Signal(),  # type: ignore[arg-type]
            expect_100_continue=self.expect_100_continue,
            keep_alive=self._may_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:  # pipelined: it waits for its turn
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _may_keep_alive(self) -> bool:
        # An HTTP/1.0 client that asks to keep the connection waits for its end unless the answer
        # says keep-alive, which ours do not.
        is_usual = self.scope["http_version"] == "1.1"
        return is_usual and self.parser.should_keep_alive() and not self.server_state.is_draining

    def _complete_scope(self) -> None:
        """Add what the head says; what cannot be parsed or is not ASCII raises, which is a 400."""
        scope, url = self.scope, httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = self.parser.get_http_version()
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""

    def on_response_complete(self) -> None:
        """Start the next pipelined request; idle connections are closed by the server's watch."""
        self.server_state.total_requests += 1
        self._since = self.loop.time()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def on_message_complete(self) -> None:
        self._stage = Stage.IDLE
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused, for its reason or for ours."""
        self._refuse(self._refusal)

    def shutdown(self) -> None:
        """Close after the request at hand; a connection not yet read gets its first answer too."""
        if self._stage is Stage.REFUSED:
            self.transport.close()
        elif self._is_answering() or (self.cycle is not None and self._stage is Stage.IDLE):
            super().shutdown()

    def check_deadline(self, now: float) -> None:
        """Close the connection if the client has kept it waiting for too long."""
        waited_s = now - self._since
        if self._stage is Stage.REFUSED and waited_s > _REFUSED_GRACE_S:
            self.transport.abort()
        elif self._stage is Stage.IDLE and not self._is_answering():
            if waited_s > KEEP_ALIVE_S:
                self.transport.close()
        elif self._stage is Stage.HEAD and not self._is_answering():
            if waited_s > HEAD_DEADLINE_S:
                self._refuse(KINDS["request-timeout"])
            elif self.server_state.is_draining and waited_s > FIRST_REQUEST_GRACE_S:
                self.transport.close()
        elif self._stage is Stage.BODY and not self.pipeline and waited_s > BODY_DEADLINE_S:
            self._refuse(KINDS["request-timeout"])  # while it is pipelined, nothing is read

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, kind: ProblemKind) -> None:
        """Answer in the application's place, unless it answers or may have acted, and close.

        Closing at once, with bytes unread, would reset the connection and take the answer away from
        the client; so what still comes is thrown away for a moment.
        """
        if self.transport.is_closing() or self._stage is Stage.REFUSED:
            return
        if not self._may_refuse():
            self.transport.close()
            return
        self._stage, self._since = Stage.REFUSED, self.loop.time()
        self._raw_bytes = 0
        self.flow.resume_reading()  # it pauses while the application has much of a body to read
        self.transport.write(_render_refusal(kind))
        self.transport.write_eof()

    def _may_refuse(self) -> bool:
        if self._stage is not Stage.BODY:
            return not self._is_answering()
        # A refusal sent ahead of an earlier request's answer would be taken for it.
        return not self.pipeline and self.cycle.withdraw()


def _render_refusal(kind: ProblemKind) -> bytes:
    body = render_kind(kind)
    head = (
        f"HTTP/1.1 {kind.status} {kind.title}\r\n"
        f"content-type: {PROBLEM_TYPE.decode()}\r\n"
        f"content-length: {len(body)}\r\n"
        "x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


async def _answer_too_many(scope: Scope, receive: Receive, send: Send) -> None:
    answer = answer_error(Unavailable("the server has too many connections; try again soon"), "-")
    await send_answer(send, answer.with_headers((b"connection", b"close")), "-")
