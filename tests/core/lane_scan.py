"""The choice of the next job as it is defined: by a look at every queue, lane and worker."""

from __future__ import annotations

from schedo.core.lanes import Lanes
from schedo.core.lines import Line
from schedo.core.model import Lane
from schedo.core.routes import Route
from schedo.core.window import Pair, Window
from schedo.core.workers import Worker, Workers

Start = tuple[int, str]  # a job and its worker


def scan(lanes: Lanes, workers: Workers) -> Start | None:
    """Return the job that starts next and the worker that gets it."""
    best: tuple[tuple[float, bool, int], Start] | None = None
    for line in lanes.lines():
        start = _first_start(line, workers) if line.is_open else None
        if start is not None and (best is None or line.key < best[0]):
            best = (line.key, start)
    return best[1] if best is not None else None


def _first_start(line: Line, workers: Workers) -> Start | None:
    """Return the line's first job that a worker can take."""
    best: tuple[Pair, Start] | None = None
    for lane, window in line.lanes.items():
        first, worker = first_of(window), pick(lane, workers)
        if first is not None and worker is not None and (best is None or first < best[0]):
            best = (first, (first[1], worker.offer.id))
    return best[1] if best is not None else None


def first_of(window: Window) -> Pair | None:
    """Return the smallest pair in memory."""
    return min(((key, ident) for ident, key in window._live.items()), default=None)


def pick(lane: Lane, workers: Workers) -> Worker | None:
    """Return the lane's best worker: the liked, then the idlest, then who waited longest."""
    route = lane.route or Route()
    able = [each for each in workers if each.offer.serves(lane) and each.room(route) > 0]
    able.sort(key=lambda each: each.number)
    return max(
        able, key=lambda each: (route.liking(each.offer.labels), each.free, each.turn), default=None
    )


def scan_pages(lanes: Lanes) -> list[Lane]:
    """Return the lanes that need a page, in the order in which they get it."""
    return [
        lane
        for line in sorted(lanes.lines(), key=lambda line: line.key)
        if not line.queue.paused
        for lane, window in line.lanes.items()
        if window.wants_page()
    ]
