"""The jobs that are due and wait for a worker, and the choice of the job that starts next.

The jobs of one ready key (queue, task and requirements) form one ready index, ordered by rank.
Within a queue, the job with the smallest rank goes first, among the ready keys that some worker
serves. So priority holds across tasks, and a ready key that no worker serves blocks no other.

Between queues, starts are shared by weight (weighted fair queueing): each start adds 1 / weight to
the virtual time of its queue, and the queue with the smallest virtual time is next. A queue that
was idle begins at the current virtual time, and before queues with the same virtual time: its first
job must not wait until a thousand other queues have started one job each.

The current virtual time is that of the last start in the same worker group or on the same worker:
other workers may start jobs a thousand times as fast. A queue that is behind it goes on from there.
So it gets nothing for the time when it had no jobs, was paused or at its limit, or had no worker.

The choice never scans all queues or ready keys. It goes through the workers: each worker group
(worker_groups.py) has a heap of the queues with jobs for it, by virtual time, and each queue has a
heap of its ready indexes for that group, by rank. An entry that cannot start now leaves its heap
when it reaches the top. The event that lets it start again puts it back:

    a job becomes first of its index     `add`, `add_page`
    an index has no more jobs            `_close`
    the queue may run another job        `ended`, `set_queue`
    a worker has a free slot             `WorkerGroup.mark_available`
    other workers serve the ready key    `WorkerGroups.generation`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from operator import attrgetter

from schedo.core.lazy_heap import LazyHeap
from schedo.core.limit_shares import LimitShares
from schedo.core.limits import READY_PAGED_MAX, READY_PAGES_MAX, SUSPECTS_MAX, WINDOW_ENTRIES
from schedo.core.model import Job, Queue, ReadyKey
from schedo.core.paged_index import IndexSize, PagedIndex, Pair
from schedo.core.queue_states import QueueState, QueueStates, ReadyIndex, Section
from schedo.core.shares import Share
from schedo.core.worker_pool import Worker, WorkerPool, WorkerSpec


class ReadyQueues:
    """All due jobs by queue and ready key. Memory holds the head of each ready index."""

    def __init__(
        self, workers: WorkerPool, capacity: int = WINDOW_ENTRIES, limit: int | None = None
    ) -> None:
        """Set the capacity of one index and the limit that all share, in entries."""
        self._groups = workers.groups
        self._generation = self._groups.generation
        self._share = Share(capacity, limit)
        # Indexes that jobs are taken from share the limit once more. The others may be thousands,
        # whose jobs no worker can run, and must not slow these down.
        self._busy_share = Share(capacity, limit)
        self._busy: dict[ReadyIndex, None] = {}
        self._period = 1
        # The store does not record which jobs are poison suspects, so memory must hold all of them.
        # They are few.
        self._suspects_size = IndexSize(capacity, SUSPECTS_MAX)
        self._suspects: set[ReadyKey] = set()
        self.is_crowded = False  # some index may hold more than its share
        self._perhaps_idle: set[str] = set()
        self._queue_states = QueueStates(self._perhaps_idle)
        self.limits = LimitShares(self._queue_states, self._reopen)
        # Returns the state of the queue; a missing one is created with the defaults.
        self.queue_state: Callable[[str], QueueState] = self._queue_states.__getitem__
        self._active: dict[str, QueueState] = {}  # the queues that have a ready index
        self._numbers = count(1)
        self._refilled: set[ReadyIndex] = set()  # those that got jobs since the last choice
        self._page_heap: LazyHeap[ReadyIndex] = LazyHeap(attrgetter("page_key"))

    def find_queue_state(self, name: str) -> QueueState | None:
        """Return the state of the queue, or None if the queue is not in use."""
        return self._queue_states.get(name)

    def queue_states(self) -> Iterator[QueueState]:
        """Yield the state of every queue that has jobs, running attempts or limits of its own."""
        return (
            queue_state for queue_state in self._queue_states.values() if not queue_state.is_idle
        )

    def evict_idle(self) -> None:
        """Evict the queues without jobs, running attempts and limits of their own."""
        for name in self._perhaps_idle:
            queue_state = self._queue_states.get(name)
            if queue_state is not None and queue_state.is_idle:
                del self._queue_states[name]
        self._perhaps_idle.clear()

    def end_period(self) -> None:
        """Shrink the indexes from which no job was taken in this period and the one before."""
        for ready in [each for each in self._busy if each.taken_in < self._period - 1]:
            self._rest(ready)
            ready.size = self._share.size
            self.is_crowded = True
        self._period += 1

    # The queues' own limits.

    def set_queue(self, queue: Queue) -> None:
        """Set the limits of a queue."""
        queue_state = self._queue_states[queue.name]
        self.limits.follow(queue_state, queue)
        self._perhaps_idle.add(queue.name)
        self._reopen(queue_state)
        for ready in queue_state.indexes.values():
            self._check_page(ready)

    def ended(self, name: str) -> None:
        """Count a running job of the queue as ended."""
        queue_state = self._queue_states[name]
        queue_state.running -= 1
        if not queue_state.running and not queue_state.indexes:
            self._perhaps_idle.add(name)
        if queue_state.queue.concurrency is not None and queue_state.free_slots == 1:  # it was full
            self._reopen(queue_state)

    def _reopen(self, queue_state: QueueState) -> None:
        for section in queue_state.sections.values():
            section.enqueue()

    # The jobs.

    def announce(self, ready_key: ReadyKey) -> None:
        """Register a ready key of which the store holds queued jobs."""
        self._open(ready_key, empty=False)

    def add(self, job: Job) -> PagedIndex | None:
        """Add the job to its index and return the index; None if only the store keeps the job."""
        ready = self._find_or_open(job.ready_key)
        if not ready.add(job.rank, job.id):
            return None
        self._refilled.add(ready)
        return ready

    def add_new(self, ready_key: ReadyKey, jobs: list[Job]) -> tuple[PagedIndex, list[Job]]:
        """Add jobs that are in no index to that of their ready key.

        Return the index, and the jobs that are in it now; only the store keeps the others.
        """
        ready = self._find_or_open(ready_key)
        if ready.horizon is not None:
            jobs = [job for job in jobs if (job.rank, job.id) <= ready.horizon]
        self.add_page(ready, [(job.rank, job.id) for job in jobs])
        return ready, jobs

    def _find_or_open(self, ready_key: ReadyKey) -> ReadyIndex:
        ready = self._queue_states[ready_key.queue].indexes.get(ready_key)
        return self._open(ready_key, empty=True) if ready is None else ready

    def add_page(self, ready: ReadyIndex, entries: list[Pair]) -> None:
        """Add loaded jobs that are not in memory, as (rank, id), to their index."""
        ready.add_page(entries)
        self._refilled.add(ready)

    def remove(self, job: Job) -> None:
        """Remove the job from its index."""
        ready = self._queue_states[job.queue].indexes.get(job.ready_key)
        if ready is not None:
            ready.remove(job.id)
            self._shrunk(ready)

    def ready_index(self, ready_key: ReadyKey) -> ReadyIndex | None:
        """Return the index of the ready key, or None if it has no jobs."""
        queue_state = self._active.get(ready_key.queue)
        return queue_state.indexes.get(ready_key) if queue_state is not None else None

    def ready_indexes(self) -> Iterator[tuple[ReadyKey, PagedIndex]]:
        """Yield every ready key that has jobs, with its index."""
        for queue_state in self._active.values():
            yield from queue_state.indexes.items()

    def take(self) -> list[tuple[int, Worker]]:
        """Remove and return the jobs that start next, each with its worker; [] if none can start.

        Before the next call, the caller must start them: `running` of the queue state counts them
        in the limits of the queue, and `Worker.hold` takes their slots.
        """
        if not self._active:  # as in most turns of a server that has few jobs
            return []
        self._catch_up()
        section = self._choose()
        ready = section.heap.first() if section is not None else None
        if section is None or ready is None:
            return []
        if ready.taken_in != self._period:
            self._note_taken(ready)
        group = section.group
        # If no job of another ready key can start, all free slots go to this one in a single call.
        is_only = len(section.heap) == len(group.waiting) == len(self._groups.available) == 1
        shares = group.share(min(section.queue_state.free_slots, len(ready)) if is_only else 1)
        entries = ready.pop_first(len(shares))
        section.note_starts(shares)
        self._groups.virtual_time = group.virtual_time
        self._shrunk(ready)
        return [(job_id, worker) for (_, job_id), worker in zip(entries, shares, strict=True)]

    def _note_taken(self, ready: ReadyIndex) -> None:
        """Note that jobs are taken from the index in this period: it is busy."""
        ready.taken_in = self._period
        if ready not in self._busy and not ready.key.isolated:
            self._busy[ready] = None
            ready.size = self._busy_share.size
            if self._busy_share.join():
                self._resized()

    def _rest(self, ready: ReadyIndex) -> None:
        """Note that the index is not busy any more."""
        del self._busy[ready]
        if self._busy_share.leave():
            self._resized()

    def _catch_up(self) -> None:
        """Apply the events since the last choice that may let jobs start."""
        self._groups.note_freed()
        if self._generation != self._groups.generation:
            self._regroup()
        for ready in self._refilled:
            bound, section = ready.bound(), ready.section
            if bound is not None and (section.heap.push(ready, bound) or section.awaits_page):
                section.enqueue()
        self._refilled.clear()

    def _choose(self) -> Section | None:
        """Return the section of the queue that is next, among those with an available worker.

        Among the sections of one queue, the one with the smallest rank is next.
        """
        available = self._groups.available
        best: Section | None = None
        best_key: tuple[object, ...] = ()
        stuck = []
        for group in available:
            section = group.waiting.first() if group.first() is not None else None
            if section is None:
                stuck.append(group)
            elif len(available) == 1:
                return section
            else:
                ready = section.heap.first()
                assert ready is not None, "a section that waits has a job"
                key = (*section.queue_state.key, ready.first())
                if best is None or key < best_key:
                    best, best_key = section, key
        for group in stuck:
            del available[group]
        return best

    @property
    def has_jobs(self) -> bool:
        """Whether a job waits, in memory or in the store."""
        return bool(self._active)

    def has_suspects_for(self, spec: WorkerSpec) -> bool:
        """Whether poison suspects wait that a worker of this spec could run."""
        return any(map(spec.serves, self._suspects))

    # Pages.

    def retreat(self, ready_key: ReadyKey, first: Pair) -> list[int]:
        """Move the horizon back, because the store has new jobs from the pair (rank, id) on.

        Return the ids that leave the index.
        """
        ready = self._queue_states[ready_key.queue].indexes.get(ready_key)
        if ready is None:
            self._open(ready_key, empty=False)
            return []
        gone = ready.retreat(first)
        self._refilled.add(ready)
        self._check_page(ready)
        return gone

    def settle(self, ready_key: ReadyKey) -> None:
        """Close the index of the key if a loaded page has shown that no job is left."""
        queue_state = self._active.get(ready_key.queue)
        if queue_state is not None and ready_key in queue_state.indexes:
            self._shrunk(queue_state.indexes[ready_key])

    def take_pages(
        self, limit: int = READY_PAGES_MAX, entries: int = READY_PAGED_MAX
    ) -> list[tuple[ReadyKey, PagedIndex]]:
        """Return up to `limit` indexes that need a page, in the order of their queues.

        No page is added once the pages have this number of entries. They count as being loaded from
        now on. An index of a paused queue needs no page.
        """
        taken: list[tuple[ReadyKey, PagedIndex]] = []
        while len(taken) < limit and entries > 0:
            ready = self._page_heap.pop()
            if ready is None:
                break
            entries -= ready.page_size
            ready.is_loading = True
            taken.append((ready.key, ready))
        return taken

    def needs_pages(self) -> bool:
        """Whether an index needs a page."""
        return self._page_heap.first() is not None

    def _check_page(self, ready: ReadyIndex) -> None:
        key = ready.page_key
        if key is not None:
            self._page_heap.push(ready, key)

    def trim(self) -> Iterator[int]:
        """Yield the ids that no longer fit, because more indexes share the limit."""
        self.is_crowded = False
        for _, ready in self.ready_indexes():
            yield from ready.trim()

    # Indexes open and close.

    def _open(self, ready_key: ReadyKey, *, empty: bool) -> ReadyIndex:
        queue_state = self._queue_states[ready_key.queue]
        if not queue_state.indexes:
            began_at = self._groups.find(ready_key).virtual_time
            queue_state.virtual_time = max(queue_state.virtual_time, began_at)
            queue_state.has_waited = not empty  # the store had its jobs before
            queue_state.number = next(self._numbers)
            self._active[ready_key.queue] = queue_state
        size = self._suspects_size if ready_key.isolated else self._share.size
        spare, queue_state.spare = queue_state.spare, None
        if spare is not None and spare.key == ready_key:  # one task that is due now and then
            ready = spare
            ready.reopen(next(self._numbers), size, empty=empty)
        else:
            ready = ReadyIndex(ready_key, queue_state, next(self._numbers), size, empty=empty)
        queue_state.indexes[ready_key] = ready
        if ready_key.isolated:
            self._suspects.add(ready_key)
        self._assign(ready)
        self._check_page(ready)
        if self._share.join():
            self._resized()
        return ready

    def _assign(self, ready: ReadyIndex) -> None:
        """Put the index into the section of its queue for the workers that serve it."""
        queue_state, group = ready.queue_state, self._groups.find(ready.key)
        section = queue_state.sections.get(group)
        if section is None:
            section = queue_state.sections[group] = Section(queue_state, group)
        ready.section = section
        section.count += 1
        group.key_count += 1
        self._refilled.add(ready)

    def _regroup(self) -> None:
        """Assign every index to its current worker group."""
        while self._generation != self._groups.generation:
            self._generation = self._groups.generation
            for queue_state in self._active.values():
                for section in queue_state.sections.values():
                    section.group.waiting.discard(section)
                    section.group.key_count -= section.count
                queue_state.sections.clear()
                for ready in queue_state.indexes.values():
                    self._assign(ready)

    def _resized(self) -> None:
        """Let the indexes adapt to a new size: some need a page, others must be trimmed."""
        self.is_crowded = True
        for queue_state in self._active.values():
            for ready in queue_state.indexes.values():
                self._check_page(ready)

    def _shrunk(self, ready: ReadyIndex) -> None:
        """Close the index if it has no jobs left; otherwise check whether it needs a page."""
        if ready.horizon is not None:
            self._check_page(ready)
        elif ready.is_exhausted and not ready.is_loading:
            self._close(ready)

    def _close(self, ready: ReadyIndex) -> None:
        queue_state, section = ready.queue_state, ready.section
        del queue_state.indexes[ready.key]
        queue_state.spare = ready
        if ready.key.isolated:
            self._suspects.remove(ready.key)
        self._page_heap.discard(ready)
        section.heap.discard(ready)
        section.group.key_count -= 1
        section.count -= 1
        if section.awaits_page:  # perhaps of this index
            section.enqueue()
        if not section.count and len(queue_state.sections) > 1:  # the last one is soon needed again
            section.group.waiting.discard(section)
            del queue_state.sections[section.group]
        if ready in self._busy:
            self._rest(ready)
        if self._share.leave():
            self._resized()
        if not queue_state.indexes:
            del self._active[ready.key.queue]
            self._perhaps_idle.add(ready.key.queue)
