"""The ready lanes: jobs that are due, one lane per queue and requirement, ordered by rank.

Within a queue the smallest rank of all lanes that somebody can serve goes first, so priority holds
across tasks; a lane nobody can serve blocks no other. Between queues turns are fair by weight:
each start moves its queue's turn on by 1 / weight, and the earliest turn is next. A queue that was
idle starts at the present turn, so that it cannot claim the past, and goes before those whose turn
is the same: its first job does not wait until a thousand other queues have started one each.

The choice never goes through all queues or lanes. A lane is found through the workers that serve
it: each group of workers (worker_groups.py) knows the queues with jobs for it, by turn, and each
queue its lanes, by rank. What cannot start now leaves these heaps when it surfaces there, and
comes back with what lets it start:

    a job comes first in its lane      `add`
    its queue may run another one      `ended`, `set_queue`
    a worker has room for it           `WorkerGroup.offer`
    other workers serve it             `WorkerGroups.generation`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from operator import attrgetter

from schedo.core.lazy_heap import LazyHeap
from schedo.core.limits import SUSPECTS_MAX, WINDOW_ENTRIES
from schedo.core.model import Job, Queue, ReadyKey
from schedo.core.paged_index import PagedIndex, Pair, Room
from schedo.core.queue_states import QueueState, ReadyIndex, Section
from schedo.core.worker_pool import Worker, WorkerPool

_ROOM_MIN = 4  # entries


class _QueueStates(dict[str, QueueState]):
    """The queues by name; one that is asked for and new is made with the defaults."""

    def __init__(self, perhaps_idle: set[str]) -> None:
        self._perhaps_idle = perhaps_idle

    def __missing__(self, name: str) -> QueueState:
        self._perhaps_idle.add(name)
        line = self[name] = QueueState(Queue(name))
        return line


class ReadyQueues:
    """All waiting jobs that are due, by queue and lane; memory holds the head of each lane."""

    def __init__(
        self, workers: WorkerPool, capacity: int = WINDOW_ENTRIES, limit: int | None = None
    ) -> None:
        """Without a limit each lane has room of its own; else all share about that."""
        self._groups = workers.groups
        self._generation = self._groups.generation
        self._capacity = capacity
        self._limit = limit
        self._room = Room(capacity, limit)
        # The store does not know who is a suspect, and they are few: memory holds them all.
        self._suspects_room = Room(capacity, SUSPECTS_MAX)
        self._count = 0  # of lanes
        self._shares = 1  # a power of two, so that room is seldom shared anew
        self.is_crowded = False  # some lane may hold more than its share
        self._perhaps_idle: set[str] = set()
        self._lines = _QueueStates(self._perhaps_idle)
        # Returns the queue's line, made with the defaults if it is new.
        self.queue_state: Callable[[str], QueueState] = self._lines.__getitem__
        self._active: dict[str, QueueState] = {}  # the lines that have a lane
        self._numbers = count(1)
        self._turn = 0.0
        self._filled: set[ReadyIndex] = set()  # those that were given jobs since the last choice
        self._hungry: LazyHeap[ReadyIndex] = LazyHeap(attrgetter("page_key"))

    def find_queue_state(self, name: str) -> QueueState | None:
        """Return the queue's line if anything is known of it."""
        return self._lines.get(name)

    def queue_states(self) -> Iterator[QueueState]:
        """Yield every line of which something is known."""
        return (line for line in self._lines.values() if not line.is_idle)

    def evict_idle(self) -> None:
        """Let go of the lines of which nothing is known."""
        for name in self._perhaps_idle:
            line = self._lines.get(name)
            if line is not None and line.is_idle:
                del self._lines[name]
        self._perhaps_idle.clear()

    # The queues' own limits.

    def set_queue(self, queue: Queue) -> None:
        """Change the limits of a queue."""
        line = self._lines[queue.name]
        line.queue = queue
        self._perhaps_idle.add(queue.name)
        self._reopen(line)
        for window in line.lanes.values():
            self._check_page(window)

    def started(self, name: str) -> None:
        """Note that a job of the queue has started."""
        self._lines[name].running += 1

    def ended(self, name: str) -> None:
        """Note that a running job of the queue has ended."""
        line = self._lines[name]
        line.running -= 1
        if not line.running and not line.lanes:
            self._perhaps_idle.add(name)
        if line.queue.concurrency is not None and line.free_slots == 1:  # it was full
            self._reopen(line)

    def _reopen(self, line: QueueState) -> None:
        for section in line.sections.values():
            section.group.await_turn(section, line.key)

    # The jobs.

    def announce(self, lane: ReadyKey) -> None:
        """Say that the store holds queued jobs of the lane."""
        self._open(lane, empty=False)

    def add(self, job: Job) -> PagedIndex | None:
        """Put the job in its lane and return that, or None if it stays in the store only."""
        lane = job.ready_key
        window = self._lines[job.queue].lanes.get(lane)
        if window is None:
            window = self._open(lane, empty=True)
        if not window.add(job.rank, job.id):
            return None
        self._filled.add(window)
        return window

    def remove(self, job: Job) -> None:
        """Take the job out of its lane."""
        window = self._lines[job.queue].lanes.get(job.ready_key)
        if window is not None:
            window.remove(job.id)
            self._shrunk(window)

    def window(self, lane: ReadyKey) -> PagedIndex | None:
        """Return the lane's window if the lane has jobs."""
        line = self._active.get(lane.queue)
        return line.lanes.get(lane) if line is not None else None

    def windows(self) -> Iterator[tuple[ReadyKey, PagedIndex]]:
        """Yield every lane that has jobs."""
        for line in self._active.values():
            yield from line.lanes.items()

    def take(self) -> list[tuple[int, Worker]]:
        """Remove and return the jobs whose turn it is, each with its worker; [] if none can start.

        Whoever asks again has started them: they count in the queue's limits and take slots.
        """
        self._catch_up()
        section = self._choose() if self._active else None
        window = section.lanes.first() if section is not None else None
        if section is None or window is None:
            return []
        line = section.line
        # Where nothing else waits, the lane's turn comes again and again.
        is_only = len(self._active) == len(line.lanes) == 1
        shares = section.group.share(min(line.free_slots, len(window)) if is_only else 1)
        entries = window.pop_first(len(shares))
        step = 1 / line.queue.weight
        line.virtual_time += step * len(entries)
        line.has_waited = True
        self._turn = line.virtual_time - step
        self._shrunk(window)
        return [(job_id, worker) for (_, job_id), worker in zip(entries, shares, strict=True)]

    def _catch_up(self) -> None:
        """Take note of what lets jobs start that came up since the last choice."""
        self._groups.note_freed()
        if self._generation != self._groups.generation:
            self._regroup()
        for window in self._filled:
            first = window.first()
            if first is not None and window.section.lanes.push(window, first):
                window.section.group.await_turn(window.section, window.queue.key)
        self._filled.clear()

    def _choose(self) -> Section | None:
        """Return the section whose turn it is, of those that a worker with room serves.

        Of one line that is the section with the smallest rank.
        """
        with_room = self._groups.with_room
        best: Section | None = None
        best_key: tuple[object, ...] = ()
        stuck = []
        for group in with_room:
            section = group.waiting.first() if group.first() is not None else None
            if section is None:
                stuck.append(group)
            elif len(with_room) == 1:
                return section
            else:
                window = section.lanes.first()
                assert window is not None, "a section that waits has a job"
                key = (*section.line.key, window.first())
                if best is None or key < best_key:
                    best, best_key = section, key
        for group in stuck:
            del with_room[group]
        return best

    # Pages.

    def retreat(self, lane: ReadyKey, first: Pair) -> list[int]:
        """Note that the store has new jobs of the lane from the pair (rank, id) on.

        Return the ids that no longer have a place in it.
        """
        window = self._lines[lane.queue].lanes.get(lane)
        if window is None:
            self._open(lane, empty=False)
            return []
        gone = window.retreat(first)
        self._check_page(window)
        return gone

    def settle(self, lane: ReadyKey) -> None:
        """Close the lane if a page showed that nothing is left in it."""
        line = self._active.get(lane.queue)
        if line is not None and lane in line.lanes:
            self._shrunk(line.lanes[lane])

    def take_pages(self, limit: int) -> list[tuple[ReadyKey, PagedIndex]]:
        """Return up to limit lanes that need a page, those whose queue's turn comes first.

        From then on their pages are on their way. What is in a paused queue is not needed.
        """
        taken: list[tuple[ReadyKey, PagedIndex]] = []
        while len(taken) < limit and (window := self._hungry.pop()) is not None:
            window.is_loading = True
            taken.append((window.key, window))
        return taken

    def needs_pages(self) -> bool:
        """Whether a lane needs a page."""
        return self._hungry.first() is not None

    def _check_page(self, window: ReadyIndex) -> None:
        key = window.page_key
        if key is not None:
            self._hungry.push(window, key)

    def trim(self) -> Iterator[int]:
        """Yield the ids that no longer fit into their lane, since more lanes share the room."""
        self.is_crowded = False
        for _, window in self.windows():
            yield from window.trim()

    # Lanes open and close.

    def _open(self, lane: ReadyKey, *, empty: bool) -> ReadyIndex:
        line = self._lines[lane.queue]
        if not line.lanes:
            line.virtual_time = max(line.virtual_time, self._turn)
            line.has_waited = not empty  # the store had its jobs before
            line.number = next(self._numbers)
            self._active[lane.queue] = line
        room = self._suspects_room if lane.isolated else self._room
        window = ReadyIndex(lane, line, next(self._numbers), room, empty=empty)
        line.lanes[lane] = window
        self._assign(window)
        self._check_page(window)
        self._count += 1
        if self._count > self._shares:
            self._share(2 * self._shares)
        return window

    def _assign(self, window: ReadyIndex) -> None:
        """Put the lane among those that the same workers serve."""
        line, group = window.queue, self._groups.find(window.key)
        section = line.sections.get(group)
        if section is None:
            section = line.sections[group] = Section(line, group)
        window.section = section
        section.count += 1
        group.lanes += 1
        self._filled.add(window)

    def _regroup(self) -> None:
        """Let every lane look for its group anew."""
        while self._generation != self._groups.generation:
            self._generation = self._groups.generation
            for line in self._active.values():
                for section in line.sections.values():
                    section.group.waiting.discard(section)
                    section.group.lanes -= section.count
                line.sections.clear()
                for window in line.lanes.values():
                    self._assign(window)

    def _share(self, shares: int) -> None:
        """Let so many lanes share the limit; each has room for a few in any case."""
        self._shares = shares
        if self._limit is not None:
            self._room.limit = max(_ROOM_MIN, self._limit // shares)
            self._room.capacity = min(self._capacity, max(2, self._room.limit // 2))
            self.is_crowded = True
            for line in self._active.values():
                for window in line.lanes.values():
                    self._check_page(window)

    def _shrunk(self, window: ReadyIndex) -> None:
        """Close the lane if it is exhausted; else it may need a page."""
        if window.horizon is not None:
            self._check_page(window)
        elif window.is_exhausted and not window.is_loading:
            self._close(window)

    def _close(self, window: ReadyIndex) -> None:
        line, section = window.queue, window.section
        del line.lanes[window.key]
        self._hungry.discard(window)
        section.lanes.discard(window)
        section.group.lanes -= 1
        section.count -= 1
        if not section.count and len(line.sections) > 1:  # the last one is soon needed again
            section.group.waiting.discard(section)
            del line.sections[section.group]
        self._count -= 1
        if self._shares > 1 and 4 * self._count < self._shares:
            self._share(self._shares // 2)
        if not line.lanes:
            del self._active[window.key.queue]
            self._perhaps_idle.add(window.key.queue)
