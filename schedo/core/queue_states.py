"""The state of one queue: its limits, and its ready jobs by the workers that can run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedo.core.lazy_heap import Key, LazyHeap
from schedo.core.limits import PAGE_ENTRIES_MAX, READY_PAGE_BYTES_MAX, READY_PAGE_MAX
from schedo.core.model import Queue, ReadyKey
from schedo.core.paged_index import START, IndexSize, PagedIndex
from schedo.core.worker_groups import WorkerGroup

if TYPE_CHECKING:
    from schedo.core.worker_pool import Worker

_UNLIMITED = 1 << 30


class QueueState:
    """One queue: its limits, its ready indexes and the number of its running jobs."""

    __slots__ = (
        "has_waited",
        "indexes",
        "number",
        "queue",
        "running",
        "sections",
        "share",
        "spare",
        "virtual_time",
    )

    def __init__(self, queue: Queue, share: int | None = None) -> None:
        """share: how many of its running jobs this server may have; None: all (limit_shares.py)."""
        self.queue = queue
        self.share = share
        self.indexes: dict[ReadyKey, ReadyIndex] = {}
        self.spare: ReadyIndex | None = None  # the last one that was closed, to open it again
        self.sections: dict[WorkerGroup, Section] = {}
        self.running = 0
        self.virtual_time = 0.0
        self.has_waited = True  # False: no job has started since the queue was idle
        self.number = 0  # in the order in which the queues got jobs

    @property
    def key(self) -> tuple[float, bool, int]:
        """The order of the queues: the smallest key starts a job next.

        At equal virtual times, a queue that was idle goes first: it need not wait for all others.
        """
        return self.virtual_time, self.has_waited, self.number

    @property
    def free_slots(self) -> int:
        """How many more jobs the limits of the queue allow to start."""
        queue = self.queue
        if queue.paused:
            return 0
        if queue.concurrency is None:
            return _UNLIMITED
        limit = queue.concurrency
        return (limit if self.share is None else min(self.share, limit)) - self.running

    @property
    def is_idle(self) -> bool:
        """Whether the queue has no jobs and no limits of its own, so that it can be evicted."""
        return not self.indexes and not self.running and self.queue == Queue(self.queue.name)

    @property
    def is_open(self) -> bool:
        """Whether the limits of the queue allow another job to start."""
        return self.free_slots > 0


class QueueStates(dict[str, QueueState]):
    """The queue states by name. A missing one is created with the defaults."""

    def __init__(self, perhaps_idle: set[str]) -> None:
        """perhaps_idle: gets the names of those that are created."""
        self._perhaps_idle = perhaps_idle
        self.share: int | None = None  # of a queue at first

    def __missing__(self, name: str) -> QueueState:
        self._perhaps_idle.add(name)
        queue_state = self[name] = QueueState(Queue(name), self.share)
        return queue_state


class ReadyIndex(PagedIndex):
    """The ready jobs of one ready key, by rank. Memory holds the head of this order."""

    __slots__ = ("_page_entries", "key", "number", "queue_state", "section", "taken_in")

    def __init__(
        self,
        ready_key: ReadyKey,
        queue_state: QueueState,
        number: int,
        size: IndexSize,
        *,
        empty: bool,
    ) -> None:
        super().__init__(size, empty=empty)
        self.key = ready_key
        self.queue_state = queue_state
        self.number = number  # in the order in which the indexes were opened
        self.taken_in = 0  # the last period in which a job was taken from it
        self.section: Section
        self._page_entries = PAGE_ENTRIES_MAX

    def reopen(self, number: int, size: IndexSize, *, empty: bool) -> None:
        """Begin again after a close, as a new index of the same key."""
        self.number, self.size = number, size
        self.horizon = None if empty else START
        self.taken_in = 0
        self._page_entries = PAGE_ENTRIES_MAX

    @property
    def page_size(self) -> int:
        """The number of entries per page; it follows the rate at which jobs are taken."""
        return min(self.size.capacity, self._page_entries)

    def note_page(self, payload_bytes: int) -> None:
        """Choose the size of the next page, before the entries of a loaded one are added.

        If the index has run dry, workers had nothing to do while the page was read: the next one is
        twice as large. If few jobs were taken meanwhile, or the payloads are large, the next one is
        half as large, because commits wait for it.
        """
        taken = self.low_mark - len(self)  # at least, since the page was requested
        if 4 * taken < self._page_entries or payload_bytes > READY_PAGE_BYTES_MAX // 2:
            self._page_entries = max(self._page_entries // 2, PAGE_ENTRIES_MAX)
        elif not len(self):
            self._page_entries = min(self._page_entries * 2, READY_PAGE_MAX)

    @property
    def low_mark(self) -> int:
        """Two pages, as far as another one then fits below the limit; else it would be trimmed.

        A read waits for a commit and a flush, and the jobs of both pages start meanwhile.
        """
        page = self.page_size
        return max(super().low_mark, min(2 * page, self.size.limit - page) - 1)

    @property
    def page_key(self) -> Key | None:
        """The place of the index among those that need a page, or None if it needs none."""
        queue_state = self.queue_state
        if queue_state.queue.paused or not self.needs_page():
            return None
        return *queue_state.key, self.number


class Section:
    """The ready indexes of one queue that the same workers serve, by their first job's rank.

    An index whose next page is being read counts with the rank after which its jobs are. If that is
    the smallest, the section waits for the page: a job of the page may be the next one.
    """

    __slots__ = ("awaits_page", "count", "group", "heap", "queue_state")

    def __init__(self, queue_state: QueueState, group: WorkerGroup) -> None:
        self.queue_state = queue_state
        self.group = group
        self.count = 0  # of indexes, including those of which memory holds no job
        self.awaits_page = False  # so it must be put back into the heap of its group afterwards
        self.heap: LazyHeap[ReadyIndex] = LazyHeap(PagedIndex.bound)

    def enqueue(self) -> None:
        """Put the section into the heap of its group: one of its jobs may start now."""
        self.awaits_page = False
        self.group.enqueue(self, self.queue_state.key)

    def note_starts(self, workers: Sequence[Worker]) -> None:
        """Count a start on each of these workers in the virtual time of the queue."""
        queue_state, group = self.queue_state, self.group
        begin = max(queue_state.virtual_time, group.virtual_time, workers[0].virtual_time)
        step = 1 / queue_state.queue.weight
        queue_state.virtual_time = begin + step * len(workers)
        queue_state.has_waited = True
        group.virtual_time = last = queue_state.virtual_time - step
        for worker in workers:
            worker.virtual_time = max(worker.virtual_time, last)

    @property
    def key(self) -> Key | None:
        """The key of its queue, or None if no job can start, however many slots are free."""
        queue_state, ready = self.queue_state, self.heap.first()
        if queue_state.free_slots <= 0 or ready is None:
            return None
        if ready.first() is None:
            self.awaits_page = True
            return None
        return queue_state.virtual_time, queue_state.has_waited, queue_state.number
