"""The desk beside the engine: for embedded applications, and for what child processes ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import orjson

from schedo.core.ids import parse_id, render_id
from schedo.core.model import Job, JobSpec
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.protocol.jobs import JobTemplate
from schedo.protocol.responses import render_job
from schedo.tasks.backend import Record, SubmittedJob


class EngineBackend:
    """Asks the engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def submit(
        self, template: JobTemplate, payloads: Sequence[bytes]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each payload; see Desk."""
        return await self.submit_specs(template.make_specs(payloads))

    async def submit_specs(self, specs: Sequence[JobSpec]) -> list[SubmittedJob | SchedoError]:
        """Submit the jobs; a job that was refused has its error in its place."""
        answers = await self._engine.submit(specs, view=_read_id)
        return [
            answer
            if isinstance(answer, SchedoError)
            else SubmittedJob(render_id(answer.job), answer.conflict)
            for answer in answers
        ]

    async def get(self, job_id: str) -> Record:
        """Return the job as it stands."""
        return _record(await self._engine.get(parse_id(job_id)))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or as it stands when the time is up."""
        return _record(await self._engine.wait(parse_id(job_id), timeout_s))

    async def cancel(self, job_id: str) -> Record:
        """Cancel the job if it waits, ask it to stop if it runs."""
        return _record(await self._engine.cancel(parse_id(job_id)))


def _read_id(job: Job) -> int:
    return job.id


def _record(job: Job) -> Record:
    return cast(Record, orjson.loads(render_job(job)))
