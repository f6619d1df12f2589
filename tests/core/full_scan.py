"""The reference for the choice of the next job: a scan of every queue, ready key and worker."""

from __future__ import annotations

from schedo.core.model import ReadyKey
from schedo.core.paged_index import PagedIndex, Pair
from schedo.core.queue_states import QueueState
from schedo.core.ready_queues import ReadyQueues
from schedo.core.requirements import Requirements
from schedo.core.worker_pool import Worker, WorkerPool

Start = tuple[int, str]  # a job and its worker


def scan(ready_queues: ReadyQueues, workers: WorkerPool) -> Start | None:
    """Return the job that starts next and the worker that gets it."""
    best: tuple[tuple[float, bool, int], Start] | None = None
    for queue_state in ready_queues.queue_states():
        start = _first_start(queue_state, workers) if queue_state.is_open else None
        if start is not None and (best is None or queue_state.key < best[0]):
            best = (queue_state.key, start)
    return best[1] if best is not None else None


def _first_start(queue_state: QueueState, workers: WorkerPool) -> Start | None:
    """Return the first job of the queue that a worker can take.

    Of ready keys that the same workers serve, one without a job in memory may have the first one in
    the store: then the others wait for it.
    """
    best: dict[object, tuple[Pair, Start | None]] = {}
    for ready_key, ready in queue_state.indexes.items():
        first, worker = first_of(ready), pick(ready_key, workers)
        bound = ready.horizon if first is None else first
        same = workers.groups.find(ready_key)
        if bound is None or worker is None or (same in best and best[same][0] < bound):
            continue
        best[same] = bound, None if first is None else (first[1], worker.spec.id)
    starts = [(bound, start) for bound, start in best.values() if start is not None]
    return min(starts)[1] if starts else None


def first_of(ready: PagedIndex) -> Pair | None:
    """Return the smallest pair in memory."""
    return min(((key, ident) for ident, key in ready._live.items()), default=None)


def pick(ready_key: ReadyKey, workers: WorkerPool) -> Worker | None:
    """Return the best worker: the preferred, then the one with most free slots, then the oldest
    last assignment. Unless all isolate a suspect, each runs one suspect at a time."""
    requirements = ready_key.requirements or Requirements()
    eligible = [each for each in workers if each.spec.serves(ready_key)]
    is_limited = ready_key.isolated and not all(
        each.spec.isolated or ready_key.task in each.spec.isolated_tasks for each in eligible
    )
    candidates = [
        each
        for each in eligible
        if each.capacity_for(requirements) > 0 and not (is_limited and each.suspects)
    ]
    candidates.sort(key=lambda each: each.number)
    return max(
        candidates,
        key=lambda each: (
            requirements.preference_score(each.spec.labels),
            each.free,
            each.last_assigned,
        ),
        default=None,
    )


def scan_pages(ready_queues: ReadyQueues) -> list[ReadyKey]:
    """Return the ready keys that need a page, in the order in which they get it."""
    return [
        ready_key
        for queue_state in sorted(
            ready_queues.queue_states(), key=lambda queue_state: queue_state.key
        )
        if not queue_state.queue.paused
        for ready_key, ready in queue_state.indexes.items()
        if ready.needs_page()
    ]
