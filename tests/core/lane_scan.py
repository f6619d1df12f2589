"""The choice of the next job as it is defined: by a look at every queue, lane and worker."""

from __future__ import annotations

from schedo.core.model import ReadyKey
from schedo.core.paged_index import PagedIndex, Pair
from schedo.core.queue_states import QueueState
from schedo.core.ready_queues import ReadyQueues
from schedo.core.requirements import Requirements
from schedo.core.worker_pool import Worker, WorkerPool

Start = tuple[int, str]  # a job and its worker


def scan(lanes: ReadyQueues, workers: WorkerPool) -> Start | None:
    """Return the job that starts next and the worker that gets it."""
    best: tuple[tuple[float, bool, int], Start] | None = None
    for line in lanes.queue_states():
        start = _first_start(line, workers) if line.is_open else None
        if start is not None and (best is None or line.key < best[0]):
            best = (line.key, start)
    return best[1] if best is not None else None


def _first_start(line: QueueState, workers: WorkerPool) -> Start | None:
    """Return the line's first job that a worker can take."""
    best: tuple[Pair, Start] | None = None
    for lane, window in line.lanes.items():
        first, worker = first_of(window), pick(lane, workers)
        if first is not None and worker is not None and (best is None or first < best[0]):
            best = (first, (first[1], worker.spec.id))
    return best[1] if best is not None else None


def first_of(window: PagedIndex) -> Pair | None:
    """Return the smallest pair in memory."""
    return min(((key, ident) for ident, key in window._live.items()), default=None)


def pick(lane: ReadyKey, workers: WorkerPool) -> Worker | None:
    """Return the lane's best worker: the liked, then the idlest, then who waited longest."""
    route = lane.requirements or Requirements()
    able = [each for each in workers if each.spec.serves(lane) and each.capacity_for(route) > 0]
    able.sort(key=lambda each: each.number)
    return max(
        able,
        key=lambda each: (route.preference_score(each.spec.labels), each.free, each.last_assigned),
        default=None,
    )


def scan_pages(lanes: ReadyQueues) -> list[ReadyKey]:
    """Return the lanes that need a page, in the order in which they get it."""
    return [
        lane
        for line in sorted(lanes.queue_states(), key=lambda line: line.key)
        if not line.queue.paused
        for lane, window in line.lanes.items()
        if window.needs_page()
    ]
