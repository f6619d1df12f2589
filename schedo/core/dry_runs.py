"""Dry runs of invocations: who could take the jobs now, and why the others do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schedo.core.explain import Explainer
from schedo.core.model import ReadyKey
from schedo.core.pauses import Pauses
from schedo.core.placement import Placement
from schedo.core.worker_obstacles import Obstacle, WorkerReason, first_obstacle
from schedo.core.worker_pool import WorkerPool
from schedo.errors import SchedoError

# A worker with a free slot takes the job with its next poll.
_ABLE = (None, Obstacle.POLL)


class DryRun(NamedTuple):
    """What an invocation would meet now."""

    refusal: SchedoError | None  # the error that it would end with; None: it would start
    able: int  # how many of the attached workers have room for one job
    considered: int
    workers: Sequence[WorkerReason]
    has_more_workers: bool


class DryRuns:
    """Answers how an invocation would end, and changes nothing."""

    def __init__(
        self, pauses: Pauses, placement: Placement, workers: WorkerPool, explainer: Explainer
    ) -> None:
        self._pauses = pauses
        self._placement = placement
        self._workers = workers
        self._explainer = explainer

    def find(self, ready_key: ReadyKey, count: int, now: int) -> DryRun:
        """Return what `count` jobs of the key would meet."""
        obstacles = [first_obstacle(worker, ready_key) for worker in self._workers]
        reasons, has_more = self._explainer.explain_workers(ready_key)
        return DryRun(
            self._find_refusal(ready_key, count, now),
            sum(obstacle in _ABLE for obstacle in obstacles),
            len(obstacles),
            [_as_able(reason) for reason in reasons],
            has_more,
        )

    def _find_refusal(self, ready_key: ReadyKey, count: int, now: int) -> SchedoError | None:
        try:
            self._pauses.check_starts()
            self._placement.choose(ready_key, count, now)
        except SchedoError as error:
            return error
        return None


def _as_able(reason: WorkerReason) -> WorkerReason:
    if reason.obstacle is not Obstacle.POLL:
        return reason
    text = "it has a free slot, and gets the job when it polls again"
    return reason._replace(obstacle=None, text=text)
