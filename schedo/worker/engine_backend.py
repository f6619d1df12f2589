"""Requests and progress reports from code in the engine's own process.

For embedded applications and for child processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import cast

import orjson

from schedo.core.ids import parse_id
from schedo.core.model import Job, JobSpec, LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_messages import Progress
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.engine.other_owners import OtherOwners
from schedo.errors import SchedoError
from schedo.protocol.job_templates import JobTemplate
from schedo.protocol.jobs import SubmittedJob, render_job
from schedo.tasks.backend import Record

_read_id: Callable[[Job], int] = attrgetter("id")


class EngineBackend:
    """A Backend that calls the engine directly."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def submit(
        self, jobs: Sequence[tuple[JobTemplate, bytes]]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit jobs; see Backend."""
        specs = [template.make_spec(payload) for template, payload in jobs]
        if jobs and jobs[0][0].request.broadcast:
            return await self.broadcast(specs[0])
        return await self.submit_specs(specs)

    async def broadcast(self, spec: JobSpec) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each connected worker that may run it."""
        from schedo.engine.broadcasts import broadcast_specs  # rare

        await self._engine.flush()  # a worker that attached just before counts, too
        return await self.submit_specs(broadcast_specs(self._engine.sessions.list(), spec))

    async def submit_specs(self, specs: Sequence[JobSpec]) -> list[SubmittedJob | SchedoError]:
        """Submit the jobs; a rejected job has its error at its position in the list."""
        others = self._engine.others
        submitting = self._submit(specs) if others is None else others.submit(specs, self._submit)
        results = await submitting
        return [
            result if isinstance(result, SchedoError) else SubmittedJob(result.job, result.conflict)
            for result in results
        ]

    async def _submit(
        self, specs: Sequence[JobSpec], home_shards: Collection[int] = ()
    ) -> list[Accepted[int] | SchedoError]:
        return await self._engine.submit(specs, view=_read_id, home_shards=home_shards)

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""
        return _record(await self._engine.get(parse_id(job_id)))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or in its current state after the timeout."""
        number, others = parse_id(job_id), self._find_others(job_id)
        here = partial(self._wait, number)
        return await (here(timeout_s) if others is None else others.wait(number, timeout_s, here))

    async def _wait(self, number: int, timeout_s: float) -> Record:
        return _record(await self._engine.wait(number, timeout_s))

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""
        number, others = parse_id(job_id), self._find_others(job_id)
        here = partial(self._cancel, number)
        return await (here() if others is None else others.cancel(number, here))

    async def _cancel(self, number: int) -> Record:
        return _record(await self._engine.cancel(number))

    def _find_others(self, job_id: str) -> OtherOwners | None:
        """Return the other servers if one of them may have the job."""
        return None if self._engine.find(parse_id(job_id)) else self._engine.others


def note_progress(engine: Engine, key: LeaseKey, update: ProgressUpdate) -> None:
    """Pass the progress of a running attempt to the engine, cut to the limits."""
    engine.note_progress(Progress(key, update.fit()))


def _record(job: Job) -> Record:
    return cast(Record, orjson.loads(render_job(job)))
