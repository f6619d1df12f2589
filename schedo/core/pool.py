"""A pool of job records: steady load allocates little, so garbage collections stay rare."""

from __future__ import annotations

from typing import Any

from schedo.core.model import PLAIN, Job

_KEPT_MAX = 1_024


class JobPool:
    """Makes records, and reuses those that are no longer referenced."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: list[Job] = []

    def __len__(self) -> int:
        return len(self._free)

    def take(self, *values: Any) -> Job:
        """Return a record with these values of its first fields, the others at their defaults."""
        if not self._free:
            return Job(*values)
        job = self._free.pop()
        Job.__init__(job, *values)
        return job

    def recycle(self, job: Job) -> None:
        """Keep the record for the next `take`. No reference to it may remain."""
        if len(self._free) < _KEPT_MAX:
            # `take` resets all fields. These may hold much memory until then.
            job.payload = job.result = job.failure = None
            job.options = PLAIN
            self._free.append(job)
