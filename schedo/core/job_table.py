"""The job records in memory: where each is held, and which of them have changed.

A record stays in memory while an index or a worker holds it, or while the store does not have its
newest version. After that it is recycled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

from schedo.core.backlog import Backlog
from schedo.core.changes import Changes
from schedo.core.commands import KeepIdempotencyRecord
from schedo.core.ids import render_id
from schedo.core.keep import KeepTimes
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX, WINDOW_ENTRIES
from schedo.core.loads import Load, Loaded, LoadReady, LoadTimers, Promoted, PromoteDue
from schedo.core.log_commands import NoteChange
from schedo.core.model import Job, Location, Queue, ReadyKey
from schedo.core.paged_index import IndexSize, PagedIndex, Pair
from schedo.core.pool import JobPool
from schedo.core.ready_queues import ReadyQueues
from schedo.core.states import FOLLOWERS, TIMED, State, check_transition
from schedo.core.waiting_counts import WaitingCounts
from schedo.core.worker_pool import WorkerPool

# Access to an enum member through its class costs as much as a small call, and happens per job.
_QUEUED = State.QUEUED
_alike = attrgetter("queue", "task", "poison_suspect", "options.requirements")  # one ready key
_NOWHERE, _IN_TIMERS, _IN_READY, _RUNNING, _HELD_BACK = Location


class JobTable:
    """Job records by id, held by the timers, a ready index or a worker."""

    def __init__(
        self,
        capacity: int = WINDOW_ENTRIES,
        ready_limit: int | None = None,
        *,
        workers: WorkerPool | None = None,
        empty: bool = False,
        offset_us: int = 0,
    ) -> None:
        self._jobs: dict[int, Job] = {}
        # Returns the record with this id if it is in memory, else None.
        self.find: Callable[[int], Job | None] = self._jobs.get
        self._keys: dict[str, int] = {}  # unique keys of the records in memory
        self._committing: dict[int, Job] = {}
        # Perhaps held by no index and no worker; the next commit checks that.
        self._evictable: set[int] = set()
        self._pool = JobPool()
        # Returns a recycled or new record, which is not yet in the table, with the values of its
        # first fields.
        self.make: Callable[..., Job] = self._pool.take
        self.timers = PagedIndex(IndexSize(capacity), empty=empty)
        self.backlog = Backlog()  # jobs that became due before memory had loaded them
        self.ready_queues = ReadyQueues(
            WorkerPool() if workers is None else workers, capacity, ready_limit
        )
        self.keeps: dict[str, KeepTimes] = {}  # how long ended jobs are kept, of some queues
        self.changes = Changes()
        self.has_new = False  # among the changes are new jobs, which wait for their commit
        self.waiting = WaitingCounts()
        self.offset_us = offset_us  # the wall clock minus the elapsed timeline
        self.ready: set[int] = set()  # jobs that a timer or a commit has just made runnable

    def __len__(self) -> int:
        return len(self._jobs)

    def find_key(self, key: str) -> Job | None:
        """Return the record in memory that holds the unique key."""
        job_id = self._keys.get(key)
        return self._jobs[job_id] if job_id is not None else None

    def find_loaded(self, job_id: int, loaded: Job | None) -> Job | None:
        """Return the record of the job, given what the store returned; memory wins."""
        known = self._jobs.get(job_id)
        if known is None and loaded is not None and not self._is_deleted(job_id):
            return loaded
        return known

    def _is_deleted(self, job_id: int) -> bool:
        """Whether the next commit deletes the job: a load may still have found it."""
        deleted = self.changes.jobs_deleted
        return bool(deleted) and job_id in deleted

    def find_unique_holder(self, key: str, loaded: Job | None) -> Job | None:
        """Return the job that holds the unique key, given what the store returned; memory wins."""
        known = self.find_key(key)
        if known is None and loaded is not None and loaded.id not in self._jobs:
            # A record in memory without the key has just released it.
            return self.find_loaded(loaded.id, loaded)
        return known

    def is_uncommitted(self, job_id: int) -> bool:
        """Whether the job has changes that are not durable."""
        return job_id in self.changes.jobs or job_id in self._committing

    def delete(self, job_id: int) -> None:
        """Delete an ended job without uncommitted changes."""
        assert job_id not in self._jobs, "the commit of its end has recycled the record"
        self.changes.jobs_deleted.append(job_id)

    def add(self, job: Job) -> None:
        """Add a new record. `committed` puts it into an index once it is durable."""
        job.is_new = self.has_new = True
        self._jobs[job.id] = self.changes.jobs[job.id] = job
        if job.unique_key is not None:
            self._keys[job.unique_key] = job.id

    def track(self, job: Job) -> Job:
        """Add a loaded record, or return the one in memory, which wins. It is in no index yet."""
        known = self._jobs.get(job.id)
        if known is not None:
            return known
        self._jobs[job.id] = job
        job.counted = job.state
        if job.unique_key is not None:
            self._keys[job.unique_key] = job.id
        return job

    def mark_dirty(self, job: Job) -> None:
        """Mark the record as changed, so that the next commit writes it."""
        self.changes.jobs[job.id] = job

    def move(self, job: Job, state: State) -> None:
        """Change the state, as far as TRANSITIONS allow it. The caller then indexes the record."""
        if state not in FOLLOWERS[job.state] and state is not job.state:
            check_transition(render_id(job.id), job.state, state)
        if job.location is not _NOWHERE:
            self.unindex(job)
        job.state = state
        self.changes.jobs[job.id] = job

    def index(self, job: Job) -> None:
        """Put a waiting record into the timers or a ready index, as its state requires.

        A record behind the horizon of the index stays in the store only. A new record waits for its
        commit, because a job must be durable before it can run.
        """
        assert job.location is _NOWHERE, "a record is held in one place only"
        if job.is_new:
            return
        if job.state is _QUEUED:
            ready = self.ready_queues.add(job)
            if ready is not None:
                job.location = _IN_READY
                if ready.is_overfull:
                    self._evict(ready.trim())
        elif job.state in TIMED and self.timers.add(job.due_at, job.id):
            job.location = _IN_TIMERS
            if self.timers.is_overfull:
                self._evict(self.timers.trim())

    def rank(self, job: Job) -> int:
        """Return the job's rank: its due instant, moved earlier by its priority."""
        came_at = job.due_at - self.offset_us
        if job.priority == 0:
            return came_at
        queue_state = self.ready_queues.queue_state(job.queue)
        return came_at - job.priority * queue_state.queue.priority_step_us

    def configure_queue(self, name: str, fields: dict[str, Any]) -> Queue:
        """Set the given fields of a queue."""
        queue = self.ready_queues.queue_state(name).queue.changed(**fields)
        self.set_queue(queue)
        self.changes.queues[queue.name] = queue
        return queue

    def set_queue(self, queue: Queue) -> None:
        """Set the limits of a queue."""
        self.ready_queues.set_queue(queue)
        if queue.keep is None:
            self.keeps.pop(queue.name, None)
        else:
            self.keeps[queue.name] = queue.keep

    def keep_idempotency_record(
        self, command: KeepIdempotencyRecord, now: int, loaded: Loaded
    ) -> None:
        """Commit the record together with the other changes of this step."""
        self.changes.idempotency_records.append(command.record)

    def note_change(self, command: NoteChange, now: int, loaded: Loaded) -> None:
        """Commit the entry of the log together with the other changes of this step."""
        self.changes.log.append(command.entry)

    def unindex(self, job: Job) -> None:
        """Remove the record from the timers or its ready index."""
        if job.location is _IN_TIMERS:
            self.timers.remove(job.id)
        elif job.location is _IN_READY:
            self.ready_queues.remove(job)
        job.location = _NOWHERE

    def put_back(self, job_ids: Iterable[int]) -> None:
        """Index the records that were held back, unless they have changed meanwhile."""
        for job_id in job_ids:
            job = self._jobs.get(job_id)
            if job is not None and job.location is _HELD_BACK:
                job.location = _NOWHERE
                self.index(job)
                self._evictable.add(job_id)  # memory may hold better ones by now

    def release_key(self, job: Job) -> None:
        """Release the record's unique key, so that another job can take it."""
        if job.unique_key is not None:
            self._keys.pop(job.unique_key, None)
            job.unique_key = None
            self.mark_dirty(job)

    @property
    def awaits_commit(self) -> bool:
        """Whether new jobs wait for their commit, or schedules for room to fire again."""
        return self.has_new or bool(self.changes.schedules)

    def take_changes(self) -> Changes:
        """Return all changes since the last call. They are being committed until `committed`."""
        changes = self.changes
        self.changes, self.has_new = Changes(), False
        self.waiting.update(changes.jobs.values())
        self._committing = changes.jobs
        return changes

    def committed(self) -> None:
        """Mark the changes that were taken last as durable, so that new jobs can run.

        Records that are held nowhere are recycled, unless they have changed again since.
        """
        done, self._committing = self._committing, {}
        again = self.changes.jobs
        queued: list[Job] = []
        for job in done.values():
            if job.is_new:
                job.is_new = False
                if job.payload is not None and len(job.payload) > PAYLOAD_INLINE_BYTES_MAX:
                    job.payload = None  # the store has it
                if job.state is _QUEUED:
                    queued.append(job)
                    continue
                if job.location is _NOWHERE:
                    self.index(job)
            if job.location is _NOWHERE and job.id not in again:
                self._recycle(job)
        self._index_new(queued)
        if self.ready_queues.is_crowded:
            self._evict(self.ready_queues.trim())
        self._recycle_evictable()

    def _index_new(self, jobs: list[Job]) -> None:
        """Put queued jobs that are durable now into their ready indexes, those of a batch together.

        Records that the indexes do not take are recycled, unless they have changed again.
        """
        for _, group in groupby(jobs, _alike):
            alike = [*group]
            ready, added = self.ready_queues.add_new(alike[0].ready_key, alike)
            for job in added:
                job.location = _IN_READY
            if ready.is_overfull:
                self._evict(ready.trim())
        again = self.changes.jobs
        for job in jobs:
            if job.location is _IN_READY:
                self.ready.add(job.id)
            elif job.id not in again:
                self._recycle(job)

    def _recycle_evictable(self) -> None:
        evictable, self._evictable = self._evictable, set()
        again = self.changes.jobs
        for job_id in evictable:
            known = self._jobs.get(job_id)
            if known is not None and known.location is _NOWHERE and job_id not in again:
                self._recycle(known)

    # Time.

    def queue_due(self, now: int, limit: int) -> None:
        """Queue up to `limit` due jobs in memory; leave overdue ones to the backlog."""
        for _, job_id in self.timers.pop_due(now, limit):
            job = self._jobs[job_id]
            job.location = _NOWHERE
            self._queue(job)
        self.backlog.take_over(self.timers, now)

    def _queue(self, job: Job) -> None:
        self.move(job, _QUEUED)
        self.index(job)
        self.ready.add(job.id)

    # Pages.

    def needs_loads(self) -> bool:
        """Whether an index needs a page, or a part of the backlog can be moved."""
        timers, backlog = self.timers, self.backlog
        return (
            (timers.horizon is not None and timers.needs_page())
            or (backlog.through is not None and backlog.needs_page())
            or self.ready_queues.needs_pages()
        )

    def loads(self) -> list[Load]:
        """Return the loads that are needed now, each once."""
        pages: list[Load] = []
        backlog = self.backlog
        if backlog.needs_page():
            backlog.is_loading = True
            pages.append(PromoteDue(backlog.after, backlog.until))
        if self.timers.needs_page():
            self.timers.is_loading = True
            assert self.timers.horizon is not None
            pages.append(LoadTimers(self.timers.horizon, self.timers.page_size))
        for ready_key, ready in self.ready_queues.take_pages():
            assert ready.horizon is not None
            pages.append(LoadReady(ready_key, ready.horizon, ready.page_size))
        return pages

    def promoted(self, load: PromoteDue, promoted: Promoted) -> None:
        """Apply a promotion: the store has queued these jobs itself."""
        self.backlog.advance(load.after, load.until, promoted.last)
        firsts: dict[ReadyKey, Pair] = {}
        for ready_key, pair in promoted.jobs:
            firsts[ready_key] = min(pair, firsts.get(ready_key, pair))
        for ready_key, first in firsts.items():
            self._evict(self.ready_queues.retreat(ready_key, first))
        for ready_key, (_, job_id) in promoted.jobs:
            before = State.RETRYING if job_id in promoted.retrying else State.SCHEDULED
            self.waiting.promoted(ready_key.queue, before)
            job = self._jobs.get(job_id)
            if job is not None and job.counted is before:
                job.counted = _QUEUED
            if job is not None and job.state in TIMED and job.due_at <= load.until:
                self._queue(job)  # memory wins over the store, so its record must change as well

    def extend_timers(self, load: LoadTimers, page: list[Job]) -> None:
        """Add a page of jobs that wait for an instant."""
        last = (page[-1].due_at, page[-1].id) if len(page) == load.limit else None
        if self.timers.extend(load.after, last):
            self._index_page(page)

    def extend_ready(self, load: LoadReady, page: list[Job]) -> None:
        """Add a page of ready jobs."""
        ready = self.ready_queues.ready_index(load.ready_key)
        assert ready is not None, "an index stays open while a page of it is loading"
        last = (page[-1].rank, page[-1].id) if len(page) == load.limit else None
        ready.note_page(sum(len(job.payload) for job in page if job.payload is not None))
        if ready.extend(load.after, last):
            # Nearly all jobs of a page are not in memory: add them to the index together.
            new = [job for job in page if job.id not in self._jobs]
            self._index_page([job for job in page if job.id in self._jobs])
            for job in new:
                self.track(job).location = _IN_READY
            self.ready_queues.add_page(ready, [(job.rank, job.id) for job in new])
            self._evict(ready.trim())
        self.ready_queues.settle(load.ready_key)

    def shift(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time, and load the order of the timers again."""
        self.offset_us += delta_us
        for job in self._jobs.values():
            job.shift(delta_us)
        self._evict(self.timers.restart())
        self.backlog = Backlog()

    def _index_page(self, page: list[Job]) -> None:
        for job in page:
            job = self.track(job)
            if job.location is _NOWHERE:
                self.index(job)
                self._evictable.add(job.id)  # a full index may have refused the record

    def place_changed(self) -> None:
        """Index the records with uncommitted changes: the loaded pages could not contain them.

        It goes through all changes, so the caller calls it once after all pages.
        """
        for job in self.changes.jobs.values():
            if job.location is _NOWHERE and (job.state in TIMED or job.state is State.QUEUED):
                self.index(job)

    def _evict(self, job_ids: Iterable[int]) -> None:
        """Mark the records as held nowhere. The next commit recycles them."""
        for job_id in job_ids:
            self._jobs[job_id].location = _NOWHERE
            self._evictable.add(job_id)

    def _recycle(self, job: Job) -> None:
        del self._jobs[job.id]
        if job.unique_key is not None and self._keys.get(job.unique_key) == job.id:
            del self._keys[job.unique_key]
        self._pool.recycle(job)
