"""The numbers of waiting jobs by queue and state, kept up to date with each commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schedo.core.model import Job
from schedo.core.states import WAITING, State


class WaitingCounts:
    """What the snapshot had, and each change since: the store counts beside the first commits.

    `Job.counted` is the state in which a record was counted last, which is that in the store.
    """

    def __init__(self) -> None:
        self.is_complete = False  # the numbers of the snapshot are in it
        self.by_queue: dict[str, dict[State, int]] = {}  # of the queues that have waiting jobs
        self.by_state = dict.fromkeys(WAITING, 0)  # of all queues

    def add_snapshot(self, by_queue: Mapping[str, Mapping[State, int]]) -> None:
        """Add what the store had when the counting of changes began."""
        self.is_complete = True
        for queue, by_state in by_queue.items():
            for state, count in by_state.items():
                self._add(queue, state, count)

    def update(self, jobs: Iterable[Job]) -> None:
        """Count the jobs of a commit in their new states."""
        moves: dict[tuple[str, State | None, State], int] = {}  # those of a batch are alike
        for job in jobs:
            if job.counted is not job.state:
                move = job.queue, job.counted, job.state
                moves[move] = moves.get(move, 0) + 1
                job.counted = job.state
        for (queue, before, now), count in moves.items():
            if before in WAITING:
                self._add(queue, before, -count)
            if now in WAITING:
                self._add(queue, now, count)

    def promoted(self, queue: str, before: State) -> None:
        """Count a job that the store itself has queued."""
        self._add(queue, before, -1)
        self._add(queue, State.QUEUED, 1)

    def _add(self, queue: str, state: State, change: int) -> None:
        self.by_state[state] += change
        by_state = self.by_queue.get(queue)
        if by_state is None:
            by_state = self.by_queue[queue] = {}
        count = by_state.get(state, 0) + change
        if count:
            by_state[state] = count
            return
        del by_state[state]
        if not by_state:
            del self.by_queue[queue]
