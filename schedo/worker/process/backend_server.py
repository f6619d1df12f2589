"""Serves the backend requests of an application in a child process: submit, get, wait and so on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from schedo.engine.engine import Engine
from schedo.errors import Overloaded, SchedoError
from schedo.protocol.frames import BackendRequest, BackendResponse, BadFrame, Refusal
from schedo.protocol.jobs import SubmittedJob
from schedo.worker.engine_backend import EngineBackend

REQUESTS_MAX = 1_000  # open at once, by one child

log = logging.getLogger("schedo.worker")


class BackendServer:
    """Serves many requests of one child at once; `send` writes a frame."""

    def __init__(self, engine: Engine, send: Callable[[BackendResponse], None]) -> None:
        self._backend = EngineBackend(engine)
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

    def cancel(self) -> None:
        """Cancel all requests without a response."""
        for task in self._pending:
            task.cancel()

    async def _serve(self, request: BackendRequest) -> None:
        try:
            response = await self._execute(request)
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
                record = await self._backend.wait(request.job_id, request.timeout_s)
                return BackendResponse(request.number, record=record)
            case "cancel":
                return BackendResponse(
                    request.number, record=await self._backend.cancel(request.job_id)
                )


def _refuse(error: SchedoError) -> Refusal:
    return Refusal(error.code, str(error))
