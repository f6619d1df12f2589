"""One queue and its jobs that are due: its limits, and its lanes by the workers that serve them."""

from __future__ import annotations

from schedo.core.lazy_heap import Key, LazyHeap
from schedo.core.model import Queue, ReadyKey
from schedo.core.paged_index import PagedIndex, Room
from schedo.core.worker_groups import WorkerGroup

_UNLIMITED = 1 << 30


class QueueState:
    """One queue: its limits, its lanes and how many of its jobs are running."""

    __slots__ = ("has_waited", "indexes", "number", "queue", "running", "sections", "virtual_time")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.indexes: dict[ReadyKey, ReadyIndex] = {}
        self.sections: dict[WorkerGroup, Section] = {}
        self.running = 0
        self.virtual_time = 0.0
        self.has_waited = True  # False: jobs have come to the idle queue, none has started since
        self.number = 0  # in the order in which the queues came to have lanes

    @property
    def key(self) -> tuple[float, bool, int]:
        """The line's place among those that wait for their turn.

        Of equal turns the one that was idle goes first, so that it need not wait for all others.
        """
        return self.virtual_time, self.has_waited, self.number

    @property
    def free_slots(self) -> int:
        """How many more jobs the queue's own limits let start."""
        queue = self.queue
        if queue.paused:
            return 0
        return _UNLIMITED if queue.concurrency is None else queue.concurrency - self.running

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of the queue but its name."""
        return not self.indexes and not self.running and self.queue == Queue(self.queue.name)

    @property
    def is_open(self) -> bool:
        """Whether the queue's own limits let another job start."""
        return self.free_slots > 0


class ReadyIndex(PagedIndex):
    """The head of one lane."""

    __slots__ = ("key", "number", "queue_state", "section")

    def __init__(
        self, ready_key: ReadyKey, queue_state: QueueState, number: int, room: Room, *, empty: bool
    ) -> None:
        super().__init__(room, empty=empty)
        self.key = ready_key
        self.queue_state = queue_state
        self.number = number  # in the order in which the lanes were opened
        self.section: Section

    @property
    def page_key(self) -> Key | None:
        """The lane's place among those that need a page; a paused queue needs none."""
        queue_state = self.queue_state
        if queue_state.queue.paused or not self.needs_page():
            return None
        return *queue_state.key, self.number


class Section:
    """The lanes of one line that the same workers serve, by the rank of their first job."""

    __slots__ = ("count", "group", "heap", "queue_state")

    def __init__(self, queue_state: QueueState, group: WorkerGroup) -> None:
        self.queue_state = queue_state
        self.group = group
        self.count = 0  # of lanes, with those of which memory holds no job
        self.heap: LazyHeap[ReadyIndex] = LazyHeap(PagedIndex.first)

    @property
    def key(self) -> Key | None:
        """The place of its line, or None if no job of it could start whatever the workers do."""
        queue_state = self.queue_state
        if queue_state.free_slots <= 0 or self.heap.first() is None:
            return None
        return queue_state.virtual_time, queue_state.has_waited, queue_state.number
