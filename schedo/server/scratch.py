"""A server on a scratch file, by which a process runs the code of jobs and requests once.

The first call of much code costs more than the later ones. Its modules are imported, and it makes
what it keeps, such as the decoders of bodies, which take up to 4 ms each. After a take-over these
calls would come together, while the requests of some milliseconds wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket

from schedo.clock import SystemClock
from schedo.core.leases import AttemptResult, Completed, Lease, StopRequest
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.loops import finish
from schedo.store import open_store
from schedo.web.app import build_app
from schedo.web.handler_table import import_all
from schedo.web.server import HttpServer
from schedo.web.settings import WebSettings

log = logging.getLogger("schedo")

_TASK = "scratch"
_RESPONSES_S = 5.0
_STATUS = re.compile(rb"HTTP/1\.1 (\d)\d\d ")
# What clients and workers send most, and so first. Each submitted job runs.
_REQUESTS: tuple[tuple[str, object], ...] = (
    ("POST /v1/jobs?wait=5s", {"task": _TASK, "delay": "0s", "payload": {}}),
    ("POST /v1/jobs:batch", [{"task": _TASK}, {"task": _TASK, "delay": "1h"}]),
    ("POST /v1/work", {"worker": _TASK, "tasks": [], "slots": 1}),
    ("GET /v1/jobs?limit=10", None),
    ("GET /v1/queues", None),
    ("GET /v1/schedules", None),
    ("GET /healthz", None),
)


async def run_scratch_server() -> None:
    """Run jobs and requests on a file of its own; a problem with that is only logged."""
    import tempfile  # only a process that waits for its store needs it

    import_all()
    try:
        with tempfile.TemporaryDirectory(prefix="schedo-") as directory:
            for _ in range(2):  # the second one opens a file that exists
                await _run_server(f"{directory}/scratch.db")
    except (OSError, SchedoError) as error:
        log.warning("the warm-up on a scratch file has failed: %s", error)


async def _run_server(path: str) -> None:
    engine = Engine(open_store(path), SystemClock())
    await engine.start()
    http = HttpServer()
    try:
        engine.attach(WorkerSpec(_TASK, 1, frozenset({_TASK})), _Immediate(engine))
        app = build_app(engine, WebSettings())
        http.use(app)
        ours, theirs = socket.socketpair()
        await http.serve(theirs, app)
        async with asyncio.timeout(_RESPONSES_S):
            responses = await _request_all(ours)
        if _STATUS.findall(responses) != [b"2"] * len(_REQUESTS):
            log.warning("requests of the warm-up have failed: %r", responses[-1_000:])
    except TimeoutError:
        log.warning("the requests of the warm-up had no response within %g s", _RESPONSES_S)
    finally:
        await finish(_stop(http, engine))  # its directory is removed next


async def _stop(http: HttpServer, engine: Engine) -> None:
    await http.stop()
    await engine.stop()


async def _request_all(sock: socket.socket) -> bytes:
    """Send the requests, and return all responses."""
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        for number, (target, content) in enumerate(_REQUESTS, 1):
            body = b"" if content is None else json.dumps(content).encode()
            head = f"{target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
            if body:
                head += "content-type: application/json\r\n"
            if number == len(_REQUESTS):
                head += "connection: close\r\n"
            writer.write(f"{head}\r\n".encode() + body)
        return await reader.read()
    finally:
        writer.close()


class _Immediate:
    """A worker whose attempts complete at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def start(self, lease: Lease) -> None:
        self._engine.report(AttemptResult(lease.key, Completed(b"null")))

    def stop(self, stop: StopRequest) -> None:
        """Do nothing: its attempts end at once."""
