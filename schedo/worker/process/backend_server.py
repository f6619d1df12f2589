"""Answers what the application's code in a child process asks: hand in jobs, how do they stand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from schedo.engine.engine import Engine
from schedo.errors import Overloaded, SchedoError
from schedo.tasks.backend import SubmittedJob
from schedo.worker.engine_backend import EngineBackend
from schedo.worker.process.frames import BackendRequest, BackendResponse, BadFrame, Refusal

REQUESTS_MAX = 1_000  # open at once, by one child

log = logging.getLogger("schedo.workers")


class BackendServer:
    """Has many questions open at once; `send` writes a frame."""

    def __init__(self, engine: Engine, send: Callable[[BackendResponse], None]) -> None:
        self._desk = EngineBackend(engine)
        self._send = send
        self._open: set[asyncio.Task[None]] = set()

    def answer(self, ask: BackendRequest) -> None:
        """Answer when the engine has, or why not."""
        if len(self._open) >= REQUESTS_MAX:
            too_many = Overloaded(
                f"{REQUESTS_MAX} questions are open already; wait for some answers"
            )
            self._send(BackendResponse(ask.number, refusal=_refuse(too_many)))
            return
        task = asyncio.create_task(self._answer(ask))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    def cancel(self) -> None:
        """Answer no more."""
        for task in self._open:
            task.cancel()

    async def _answer(self, ask: BackendRequest) -> None:
        try:
            answer = await self._ask(ask)
        except SchedoError as error:
            answer = BackendResponse(ask.number, refusal=_refuse(error))
        except Exception:
            log.exception("a child's question could not be answered")
            answer = BackendResponse(ask.number, refusal=Refusal("internal", "an internal error"))
        try:
            self._send(answer)
        except BadFrame as error:
            self._send(BackendResponse(ask.number, refusal=Refusal("too-large", str(error))))

    async def _ask(self, ask: BackendRequest) -> BackendResponse:
        match ask.verb:
            case "submit":
                answers = await self._desk.submit_specs(ask.specs)
                tickets = [
                    item if isinstance(item, SubmittedJob) else _refuse(item) for item in answers
                ]
                return BackendResponse(ask.number, tickets)
            case "get":
                return BackendResponse(ask.number, record=await self._desk.get(ask.job_id))
            case "wait":
                record = await self._desk.wait(ask.job_id, ask.timeout_s)
                return BackendResponse(ask.number, record=record)
            case "cancel":
                return BackendResponse(ask.number, record=await self._desk.cancel(ask.job_id))


def _refuse(error: SchedoError) -> Refusal:
    return Refusal(error.code, str(error))
