"""A real HTTP server with prepared responses; it records the requests that it receives."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A received request; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int  # the client's port, which identifies the connection

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """A prepared response; a status of 0 closes the connection without a response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    closes: bool = False  # closes the connection afterwards, without announcing it in a header


class FakeServer:
    """Sends the responses queued for each method and path; the last one is sent repeatedly."""

    def __init__(self, http: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{http.server_address[1]}"
        self.requests: list[Request] = []
        self.closed = threading.Semaphore(0)  # released when the server has closed a connection
        self._replies: dict[tuple[str, str], deque[Reply]] = defaultdict(deque)

    def on(self, method: str, path: str, status: int, body: object = None, **headers: str) -> None:
        """Queue a response; header names are written with _ instead of -."""
        plain = b"" if body is None else json.dumps(body).encode()
        kind = "application/problem+json" if status >= 400 else "application/json"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply(method, path, Reply(status, plain, {"Content-Type": kind, **named}))

    def reply(self, method: str, path: str, reply: Reply) -> None:
        """Queue a Reply."""
        self._replies[method, path].append(reply)

    def next_reply(self, method: str, target: str) -> Reply:
        queue = self._replies.get((method, target.partition("?")[0]))
        if not queue:
            return Reply(599, b"this test has no answer for it")
        return queue.popleft() if len(queue) > 1 else queue[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeServer

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.fake.requests.append(
            Request(self.command, self.path, headers, body, self.client_address[1])
        )
        reply = self.fake.next_reply(self.command, self.path)
        self.close_connection = reply.closes or not reply.status
        if reply.status:
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    fake: FakeServer

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.fake.closed.release()


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    """Run a server during the block."""
    handler = type("Handler", (_Handler,), {})
    with _Server(("127.0.0.1", 0), handler) as http:
        fake = FakeServer(http)
        http.fake = handler.fake = fake  # type: ignore[attr-defined]
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield fake
        finally:
            http.shutdown()
            thread.join(10)


JOB_ID = "01K0000000001"


def job_record(**fields: Any) -> dict[str, Any]:
    """Return the JSON of a job, as the API renders it."""
    record = {
        "id": JOB_ID,
        "state": "queued",
        "task": "email.send",
        "queue": "default",
        "priority": 0,
        "payload": {"to": "ada"},
        "attempt": 0,
        "max_attempts": 5,
        "failures": 0,
        "losses": 0,
        "created_at": "2026-11-20T11:00:00.000000Z",
        "scheduled_at": "2026-11-20T11:00:00.000000Z",
    }
    return {**record, **fields}


def schedule_record(**fields: Any) -> dict[str, Any]:
    """Return the JSON of a schedule, as the API renders it."""
    record = {
        "name": "nightly",
        "cron": "0 3 * * *",
        "tz": "UTC",
        "task": "shell",
        "payload": {"command": "true"},
        "paused": False,
        "owner": "api",
        "next_fires": ["2099-11-21T03:00:00.000000Z"],
        "counters": {"fired": 0, "missed": 0, "overlap_skipped": 0, "buffered": 0},
        "warnings": [],
    }
    return {**record, **fields}


def problem(status: int, code: str, detail: str, **fields: Any) -> dict[str, Any]:
    """Return a problem document."""
    return {"status": status, "code": code, "detail": detail, "request_id": "r-1", **fields}
