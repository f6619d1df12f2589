"""A pool of job records, so that steady load allocates little and the garbage collector stays
quiet.
"""

from __future__ import annotations

from schedo.core.model import Job

_KEPT_MAX = 1_024


class JobPool:
    """Hands out blank records and takes back the ones nobody refers to any more."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: list[Job] = []

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> Job:
        """Return a record with every field at its default."""
        return self._free.pop() if self._free else Job()

    def give_back(self, job: Job) -> None:
        """Blank the record and keep it for the next take."""
        if len(self._free) < _KEPT_MAX:
            Job.__init__(job)
            self._free.append(job)
