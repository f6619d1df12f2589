"""The desk of an application that runs in a child process: its questions go to the server's socket.

Answers come by number, so many questions can be open at once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence

from schedo.errors import Invalid, SchedoError
from schedo.protocol.jobs import JobTemplate
from schedo.tasks.backend import Record, SubmittedJob
from schedo.worker.process.frames import BackendRequest, BackendResponse, BadFrame, Refusal


class ChildBackend:
    """Asks the server; `send` writes a frame."""

    def __init__(self, send: Callable[[BackendRequest], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[BackendResponse]] = {}

    async def submit(
        self, template: JobTemplate, payloads: Sequence[bytes]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each payload; see Desk."""
        specs = template.make_specs(payloads)
        answer = await self._ask(BackendRequest(next(self._numbers), "submit", specs=specs))
        return [
            item if isinstance(item, SubmittedJob) else build_error(item) for item in answer.tickets
        ]

    async def get(self, job_id: str) -> Record:
        """Return the job as it stands."""
        return (await self._ask(BackendRequest(next(self._numbers), "get", job_id=job_id))).record

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or as it stands when the time is up."""
        ask = BackendRequest(next(self._numbers), "wait", job_id=job_id, timeout_s=timeout_s)
        return (await self._ask(ask)).record

    async def cancel(self, job_id: str) -> Record:
        """Cancel the job if it waits, ask it to stop if it runs."""
        return (
            await self._ask(BackendRequest(next(self._numbers), "cancel", job_id=job_id))
        ).record

    def receive(self, answer: BackendResponse) -> None:
        """Give the answer to whoever asked; nobody may be waiting any more."""
        future = self._open.pop(answer.number, None)
        if future is not None and not future.done():
            future.set_result(answer)

    async def _ask(self, ask: BackendRequest) -> BackendResponse:
        answer = await self._exchange(ask)
        if answer.refusal is not None:
            raise build_error(answer.refusal)
        return answer

    async def _exchange(self, ask: BackendRequest) -> BackendResponse:
        future: asyncio.Future[BackendResponse] = asyncio.get_running_loop().create_future()
        self._open[ask.number] = future
        try:
            self._send(ask)
            return await future
        except BadFrame as error:
            raise Invalid(f"too much at once: {error}; hand in fewer jobs at a time") from None
        finally:
            self._open.pop(ask.number, None)


def build_error(refusal: Refusal) -> SchedoError:
    """Return the error that the server raised."""
    kind = next((kind for kind in _tree(SchedoError) if kind.code == refusal.code), SchedoError)
    return kind(refusal.message)


def _tree(kind: type[SchedoError]) -> Iterator[type[SchedoError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)
