"""The ready lanes: jobs that are due, one lane per queue and requirement, ordered by rank.

Within a queue the smallest rank of all lanes that somebody can serve goes first, so priority holds
across tasks; a lane nobody can serve blocks no other. Between queues turns are fair by weight:
each start moves its queue's turn on by 1 / weight, and the earliest turn is next. A queue that was
idle starts at the present turn, so that it cannot claim the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from operator import itemgetter

from schedo.core.limits import SUSPECTS_MAX, WINDOW_ENTRIES
from schedo.core.model import Job, Lane, Queue
from schedo.core.window import Pair, Room, Window
from schedo.core.workers import Worker, Workers

_UNLIMITED = 1 << 30
_ROOM_MIN = 4  # entries


class Line:
    """One queue: its limits, its lanes and how many of its jobs are running."""

    __slots__ = ("lanes", "queue", "running", "turn")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.lanes: dict[Lane, Window] = {}
        self.running = 0
        self.turn = 0.0

    @property
    def room(self) -> int:
        """How many more jobs the queue's own limits let start."""
        queue = self.queue
        if queue.paused:
            return 0
        return _UNLIMITED if queue.concurrency is None else queue.concurrency - self.running

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of the queue but its name."""
        return not self.lanes and not self.running and self.queue == Queue(self.queue.name)

    @property
    def is_open(self) -> bool:
        """Whether the queue's own limits let another job start."""
        return self.room > 0


class _Lines(dict[str, Line]):
    """The queues by name; one that is asked for and new is made with the defaults."""

    def __missing__(self, name: str) -> Line:
        line = self[name] = Line(Queue(name))
        return line


class Lanes:
    """All waiting jobs that are due, by queue and lane; memory holds the head of each lane."""

    def __init__(self, capacity: int = WINDOW_ENTRIES, limit: int | None = None) -> None:
        """Without a limit each lane has room of its own; else all share about that."""
        self._capacity = capacity
        self._limit = limit
        self._room = Room(capacity, limit)
        # The store does not know who is a suspect, and they are few: memory holds them all.
        self._suspects_room = Room(capacity, SUSPECTS_MAX)
        self._count = 0  # of lanes
        self._shares = 1  # a power of two, so that room is seldom shared anew
        self.is_crowded = False  # some lane may hold more than its share
        self._lines = _Lines()
        # Returns the queue's line, made with the defaults if it is new.
        self.line: Callable[[str], Line] = self._lines.__getitem__
        self._active: dict[str, Line] = {}  # the lines that have a lane
        self._turn = 0.0

    def find_line(self, name: str) -> Line | None:
        """Return the queue's line if anything is known of it."""
        return self._lines.get(name)

    def lines(self) -> Iterator[Line]:
        """Yield every line of which something is known."""
        return (line for line in self._lines.values() if not line.is_idle)

    def forget_idle(self) -> None:
        """Let go of the lines of which nothing is known."""
        for name in [name for name, line in self._lines.items() if line.is_idle]:
            del self._lines[name]

    def announce(self, lane: Lane) -> None:
        """Say that the store holds queued jobs of the lane."""
        self._open(lane, empty=False)

    def add(self, job: Job) -> Window | None:
        """Put the job in its lane and return that, or None if it stays in the store only."""
        lane = job.lane
        window = self._lines[job.queue].lanes.get(lane)
        if window is None:
            window = self._open(lane, empty=True)
        return window if window.add(job.rank, job.id) else None

    def remove(self, job: Job) -> None:
        """Take the job out of its lane."""
        lane = job.lane
        line = self._lines[lane.queue]
        window = line.lanes.get(lane)
        if window is not None:
            window.remove(job.id)
            self._close_if_exhausted(line, lane, window)

    def window(self, lane: Lane) -> Window | None:
        """Return the lane's window if the lane has jobs."""
        line = self._active.get(lane.queue)
        return line.lanes.get(lane) if line is not None else None

    def windows(self) -> Iterator[tuple[Lane, Window]]:
        """Yield every lane that has jobs."""
        for line in self._active.values():
            yield from line.lanes.items()

    def take(self, workers: Workers) -> list[tuple[int, Worker]]:
        """Remove and return the jobs whose turn it is, each with its worker; [] if none can start.

        Whoever asks again has started them: they count in the queue's limits and take slots.
        """
        choice = self._choose(workers)
        if choice is None:
            return []
        line, lane = choice
        window = line.lanes[lane]
        # Where nothing else waits, the lane's turn comes again and again.
        is_only = len(self._active) == len(line.lanes) == 1
        shares = workers.share(lane, min(line.room, len(window)) if is_only else 1)
        entries = window.pop_first(len(shares))
        step = 1 / line.queue.weight
        line.turn += step * len(entries)
        self._turn = line.turn - step
        self._close_if_exhausted(line, lane, window)
        return [(job_id, worker) for (_, job_id), worker in zip(entries, shares, strict=True)]

    def _choose(self, workers: Workers) -> tuple[Line, Lane] | None:
        """Return the line whose turn it is, and its first lane that somebody serves."""
        best: tuple[Line, Lane] | None = None
        for line in self._active.values():
            if line.is_open and (best is None or line.turn < best[0].turn):
                lane = _first_served(line, workers)
                if lane is not None:
                    best = (line, lane)
        return best

    def retreat(self, lane: Lane, first: Pair) -> list[int]:
        """Note that the store has new jobs of the lane from the pair (rank, id) on.

        Return the ids that no longer have a place in it.
        """
        window = self._lines[lane.queue].lanes.get(lane)
        if window is None:
            self._open(lane, empty=False)
            return []
        return window.retreat(first)

    def settle(self, lane: Lane) -> None:
        """Close the lane if a page showed that nothing is left in it."""
        line = self._active.get(lane.queue)
        if line is not None and lane in line.lanes:
            self._close_if_exhausted(line, lane, line.lanes[lane])

    def pages(self, count: int) -> list[tuple[Lane, Window]]:
        """Return up to count lanes that need a page, those whose queue's turn comes first.

        What is in a paused queue is not needed.
        """
        found = [
            (line.turn, number, lane, window)
            for number, line in enumerate(self._active.values())
            if not line.queue.paused
            for lane, window in line.lanes.items()
            if window.wants_page()
        ]
        first = nsmallest(count, found, key=itemgetter(0, 1))
        return [(lane, window) for _, _, lane, window in first]

    def needs_pages(self) -> bool:
        """Whether a lane needs a page."""
        return any(
            window.wants_page()
            for line in self._active.values()
            if not line.queue.paused
            for window in line.lanes.values()
        )

    def trim(self) -> Iterator[int]:
        """Yield the ids that no longer fit into their lane, since more lanes share the room."""
        self.is_crowded = False
        for _, window in self.windows():
            yield from window.trim()

    def _open(self, lane: Lane, *, empty: bool) -> Window:
        line = self._lines[lane.queue]
        if not line.lanes:
            line.turn = max(line.turn, self._turn)
            self._active[lane.queue] = line
        room = self._suspects_room if lane.alone else self._room
        window = line.lanes[lane] = Window(room, empty=empty)
        self._count += 1
        if self._count > self._shares:
            self._share(2 * self._shares)
        return window

    def _share(self, shares: int) -> None:
        """Let so many lanes share the limit; each has room for a few in any case."""
        self._shares = shares
        if self._limit is not None:
            self._room.limit = max(_ROOM_MIN, self._limit // shares)
            self._room.capacity = min(self._capacity, max(2, self._room.limit // 2))
            self.is_crowded = True

    def _close_if_exhausted(self, line: Line, lane: Lane, window: Window) -> None:
        if window.is_exhausted and not window.is_loading:
            del line.lanes[lane]
            self._count -= 1
            if self._shares > 1 and 4 * self._count < self._shares:
                self._share(self._shares // 2)
            if not line.lanes:
                del self._active[lane.queue]


def _first_served(line: Line, workers: Workers) -> Lane | None:
    """Return the lane with the smallest rank that a worker with room serves."""
    best: Lane | None = None
    best_first: tuple[int, int] | None = None
    for lane, window in line.lanes.items():
        first = window.first()
        if first is None or (best_first is not None and first >= best_first):
            continue
        if workers.pick(lane) is not None:
            best, best_first = lane, first
    return best
