"""Serves the backend requests of an application in a child process: submit, get, wait and so on.

In an upgrade the server of the child is replaced while its tasks run. A request that meets a frozen
engine waits until the engine is open again, or until a new server answers it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from schedo.core.states import FINAL
from schedo.engine.engine import Engine
from schedo.errors import Overloaded, SchedoError
from schedo.protocol.frames import BackendRequest, BackendResponse, BadFrame, Refusal
from schedo.protocol.jobs import SubmittedJob
from schedo.tasks.backend import Record
from schedo.worker.engine_backend import EngineBackend

if TYPE_CHECKING:
    from schedo.worker.successor_backend import SuccessorBackend

REPLACED_CHECK_S = 0.02
REQUESTS_MAX = 1_000  # open at once, by one child

log = logging.getLogger("schedo.worker")


class BackendServer:
    """Serves many requests of one child at once; `send` writes a frame."""

    def __init__(self, engine: Engine, send: Callable[[BackendResponse], None]) -> None:
        self._engine = engine
        self._backend: EngineBackend | SuccessorBackend = EngineBackend(engine)
        self._send = send
        self._pending: set[asyncio.Task[None]] = set()

    def serve(self, request: BackendRequest) -> None:
        """Start to serve the request; the response is sent later, or an error at once."""
        if len(self._pending) >= REQUESTS_MAX:
            too_many = Overloaded(
                f"this process already has {REQUESTS_MAX} open requests to the server;"
                " wait for some of them first"
            )
            self._send(BackendResponse(request.number, refusal=_refuse(too_many)))
            return
        task = asyncio.create_task(self._serve(request))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    def follow(self, successor: SuccessorBackend) -> None:
        """Send the requests that wait, and those that follow, to the server that follows."""
        self._backend = successor

    def cancel(self) -> None:
        """Cancel all requests without a response."""
        for task in self._pending:
            task.cancel()

    async def _serve(self, request: BackendRequest) -> None:
        try:
            response = await self._execute_here_or_there(request)
        except SchedoError as error:
            response = BackendResponse(request.number, refusal=_refuse(error))
        except Exception:
            log.exception("an internal error in a backend request of a child process")
            response = BackendResponse(
                request.number, refusal=Refusal("internal", "internal error")
            )
        try:
            self._send(response)
        except BadFrame as error:
            self._send(BackendResponse(request.number, refusal=Refusal("too-large", str(error))))

    async def _execute_here_or_there(self, request: BackendRequest) -> BackendResponse:
        """Execute the request; one that a frozen engine refused has not been carried out."""
        while True:
            backend = self._backend
            try:
                return await self._execute(request)
            except SchedoError:
                if backend is self._backend and not self._is_between:
                    raise
            await self._wait_for_server()

    async def _wait_for_server(self) -> None:
        """Return when this server or the one that follows carries out requests."""
        while self._is_between:  # noqa: ASYNC110  # for milliseconds, once in its life
            await asyncio.sleep(REPLACED_CHECK_S)

    @property
    def _is_between(self) -> bool:
        """Whether no server answers: the engine is frozen, and no other one follows yet."""
        return isinstance(self._backend, EngineBackend) and self._engine.freezing.is_frozen

    async def _wait(self, job_id: str, timeout_s: float) -> Record:
        """Wait for the end of the job, also if the server is replaced meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            await self._wait_for_server()  # no end reaches a wait in a frozen engine
            record = await self._backend.wait(job_id, max(0.0, until - loop.time()))
            if record["state"] in FINAL or loop.time() >= until:
                return record
            await asyncio.sleep(REPLACED_CHECK_S)  # the wait was ended for an upgrade

    async def _execute(self, request: BackendRequest) -> BackendResponse:
        match request.verb:
            case "submit" | "broadcast":
                if request.verb == "submit":
                    results = await self._backend.submit_specs(request.specs)
                else:
                    results = await self._backend.broadcast(request.specs[0])
                tickets = [
                    item if isinstance(item, SubmittedJob) else _refuse(item) for item in results
                ]
                return BackendResponse(request.number, tickets)
            case "get":
                return BackendResponse(
                    request.number, record=await self._backend.get(request.job_id)
                )
            case "wait":
                record = await self._wait(request.job_id, request.timeout_s)
                return BackendResponse(request.number, record=record)
            case "cancel":
                return BackendResponse(
                    request.number, record=await self._backend.cancel(request.job_id)
                )


def _refuse(error: SchedoError) -> Refusal:
    return Refusal(error.code, str(error))
