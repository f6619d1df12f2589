"""The recent progress of running attempts; it is not stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from schedo.core.leases import AttemptResult
from schedo.core.worker_messages import Progress, ProgressLine

KEPT = 100


class ProgressLog:
    """The last KEPT progress messages of each running attempt, by job id.

    Only the latest message with output keeps it: the ends of the streams replace the earlier ones.
    """

    def __init__(self) -> None:
        self._lines: dict[int, deque[ProgressLine]] = {}

    def note(self, progress: Progress, now: int) -> None:
        """Keep a progress message; a new attempt starts a new log."""
        lines = self._lines.get(progress.key.job_id)
        if lines is None or lines[-1].progress.key != progress.key:  # of an earlier attempt
            lines = self._lines[progress.key.job_id] = deque(maxlen=KEPT)
        if progress.update.has_output:
            _drop_output(lines)
        lines.append(ProgressLine(now, progress))

    def of(self, job_id: int) -> list[ProgressLine]:
        """Return the messages of the job's running attempt, oldest first."""
        return list(self._lines.get(job_id, ()))

    def last_of(self, job_id: int) -> ProgressLine | None:
        """Return the latest message of the job's running attempt; None if there is none."""
        lines = self._lines.get(job_id)
        return lines[-1] if lines else None

    def forget(self, results: Iterable[AttemptResult]) -> None:
        """Drop the messages of ended attempts."""
        if self._lines:
            for result in results:
                self._lines.pop(result.key.job_id, None)

    def keep_only(self, runs: Callable[[int], bool]) -> None:
        """Drop the messages of jobs that do not run, by the predicate `runs`."""
        for job_id in [job_id for job_id in self._lines if not runs(job_id)]:
            del self._lines[job_id]


def _drop_output(lines: deque[ProgressLine]) -> None:
    for index, (at, (key, update)) in enumerate(lines):
        if update.has_output:
            lines[index] = ProgressLine(at, Progress(key, update.without_output()))
