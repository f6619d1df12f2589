"""A pool of job records: steady load allocates little, so garbage collections stay rare."""

from __future__ import annotations

from schedo.core.model import Job

_KEPT_MAX = 1_024


class JobPool:
    """Provides blank records, and reuses records that are no longer referenced."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: list[Job] = []

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> Job:
        """Return a record with every field at its default."""
        return self._free.pop() if self._free else Job()

    def recycle(self, job: Job) -> None:
        """Reset the record and keep it for the next `take`. No reference to it may remain."""
        if len(self._free) < _KEPT_MAX:
            Job.__init__(job)
            self._free.append(job)
