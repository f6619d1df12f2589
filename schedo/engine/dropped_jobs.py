"""The jobs that are not kept, for the clients that ask for them a moment after their end.

A client that submits a job and then waits for it sends two requests, and the job may end between
them. So memory holds the latest of these jobs for a short time, with the output of their last
attempts. It is no promise: a restart forgets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schedo.core.changes import Output
from schedo.core.job_commands import no_job
from schedo.core.model import Job
from schedo.store.base import OutputPiece, OutputSize

HELD_S = 10.0
HELD_JOBS_MAX = 1_000
HELD_BYTES_MAX = 4_194_304  # of payloads, results and output


class _Dropped(NamedTuple):
    job: Job
    outputs: Sequence[Output]
    size: int
    until: float  # in seconds of the event loop's clock


class DroppedJobs:
    """The final records of dropped jobs, by id, in the order of their ends."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Dropped] = {}
        self._size = 0

    def add(self, jobs: Sequence[Job], outputs: Iterable[Output], now_s: float) -> None:
        """Hold copies of jobs that have been dropped; outputs: of all attempts in their commit."""
        by_job: dict[int, list[Output]] = {}
        for output in outputs:
            by_job.setdefault(output.job_id, []).append(output)
        for job in jobs[-HELD_JOBS_MAX:]:
            own = by_job.get(job.id, ())
            size = len(job.payload or b"") + len(job.result or b"")
            size += sum(len(each.capture.head) + len(each.capture.tail) for each in own)
            self._by_id[job.id] = _Dropped(job, own, size, now_s + HELD_S)
            self._size += size
        self.evict(now_s)

    def evict(self, now_s: float) -> None:
        """Forget the oldest ones, as far as their time has passed or there are too many."""
        while self._by_id:
            job_id, oldest = next(iter(self._by_id.items()))
            is_full = len(self._by_id) > HELD_JOBS_MAX or self._size > HELD_BYTES_MAX
            if not is_full and now_s < oldest.until:
                return
            del self._by_id[job_id]
            self._size -= oldest.size

    def find(self, job_id: int) -> Job:
        """Return a copy of the job's final record; raise NotFound."""
        dropped = self._by_id.get(job_id)
        if dropped is None:
            raise no_job(job_id)
        return dropped.job.copy()

    # The output, as the store has it for other jobs.

    async def list_output_sizes(self, job_id: int) -> list[OutputSize]:
        """Return the sizes of the captured streams."""
        return [_measure(output) for output in self._outputs(job_id)]

    async def read_output(self, job_id: int, piece: OutputPiece) -> bytes:
        """Return a range of a captured stream; empty if the job is forgotten meanwhile."""
        for output in self._outputs(job_id):
            if (output.attempt, output.capture.stream) == (piece.attempt, piece.stream):
                part: bytes = getattr(output.capture, piece.part)
                return part[piece.at : piece.at + piece.length]
        return b""

    def _outputs(self, job_id: int) -> Sequence[Output]:
        dropped = self._by_id.get(job_id)
        return () if dropped is None else dropped.outputs


def _measure(output: Output) -> OutputSize:
    capture = output.capture
    return OutputSize(
        output.attempt, capture.stream, len(capture.head), len(capture.tail), capture.total_bytes
    )
