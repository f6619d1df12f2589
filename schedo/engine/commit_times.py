"""When each of the latest commits was durable, by the last id that existed when it began.

Ids grow, so the commit that made a job durable is the first one whose last id is not smaller. This
costs nothing per job, and so it is known only of recent jobs and not over a restart. It is not
known of the jobs of SQL clients, whose ids are older than their commits.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from schedo.core.ids import is_from_sql

COMMITS_KEPT = 4_096


class CommitTimes:
    """The instants of the latest COMMITS_KEPT commits at least, and at most twice as many."""

    def __init__(self) -> None:
        self._last_ids = array("q")
        self._instants = array("q")
        self._known_after = 0  # the last id of a commit that is not kept, or before the first

    def begin(self, last_id: int) -> None:
        """Forget all commits; the instants of jobs up to this id stay unknown."""
        self._known_after = last_id
        del self._last_ids[:], self._instants[:]

    def note(self, last_id: int, at: int) -> None:
        """Note a commit with all jobs up to this id."""
        self._last_ids.append(last_id)
        self._instants.append(at)
        if len(self._last_ids) >= 2 * COMMITS_KEPT:
            self._known_after = self._last_ids[COMMITS_KEPT - 1]
            del self._last_ids[:COMMITS_KEPT], self._instants[:COMMITS_KEPT]

    def find(self, job_id: int) -> int | None:
        """Return when the job was durable, or None if that is not known."""
        if job_id <= self._known_after or is_from_sql(job_id):
            return None
        at = bisect_left(self._last_ids, job_id)
        return self._instants[at] if at < len(self._instants) else None
