"""Broadcasts: one job for each connected worker that may run it, busy or not."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from schedo.core.limits import BATCH_JOBS_MAX
from schedo.core.model import JobSpec, ReadyKey
from schedo.core.requirements import Condition, Requirements
from schedo.core.worker_messages import WorkerStatus
from schedo.core.worker_pool import PLACE_LABEL
from schedo.engine.workers import spec_of
from schedo.errors import Invalid, TooLarge, Unsatisfiable


def broadcast_specs(workers: Iterable[WorkerStatus], spec: JobSpec) -> list[JobSpec]:
    """Return one spec for each of the workers that may run the job.

    Raise Invalid, Unsatisfiable if there is none, or TooLarge if there are too many.
    """
    if spec.options.unique is not None:
        raise Invalid.field("/unique", "the jobs of a broadcast cannot share a unique key")
    ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
    requirements = spec.options.requirements or Requirements()
    # A place has two child processes for a time: one that has retired, and the next one.
    narrowed = dict.fromkeys(
        _narrow(requirements, worker)
        for worker in sorted(workers, key=lambda worker: worker.name)
        if worker.state == "active" and spec_of(worker).serves(ready_key)
    )
    if not narrowed:
        raise Unsatisfiable("no connected worker may run the job")
    if len(narrowed) > BATCH_JOBS_MAX:
        raise TooLarge(
            f"{len(narrowed)} workers match; a broadcast reaches at most {BATCH_JOBS_MAX}"
        )
    return [replace(spec, options=replace(spec.options, requirements=each)) for each in narrowed]


def _narrow(requirements: Requirements, worker: WorkerStatus) -> Requirements:
    """Require this worker, or the place of a child process: its name ends with the process."""
    place = worker.labels.get(PLACE_LABEL)
    if place is None:
        return replace(requirements, worker=worker.name)
    condition = Condition(PLACE_LABEL, "=", (place,))
    return replace(requirements, labels=(*requirements.labels, condition))
