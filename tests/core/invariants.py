"""Invariants between a scheduler and its store."""

from __future__ import annotations

from collections import Counter

from schedo.core.backlog import Backlog
from schedo.core.ids import ID_MAX
from schedo.core.loads import Promoted
from schedo.core.model import Job, Location
from schedo.core.paged_index import Pair
from schedo.core.states import TIMED, State
from tests.core.full_scan import scan_pages
from tests.core.server import Server


def check(server: Server) -> None:
    """Check every invariant; an AssertionError says which job or schedule breaks it."""
    check_jobs(server)
    check_pages(server)
    check_schedules(server)
    check_running(server)
    check_blocked(server)
    check_memory(server)
    check_counts(server)


def current_jobs(server: Server) -> list[Job]:
    """Return every job in its newest version: memory wins over the store."""
    known = server.scheduler._jobs._jobs
    return [*known.values(), *(j for i, j in server.store.jobs.items() if i not in known)]


def check_jobs(server: Server) -> None:
    """Every waiting job is in memory, or the store will load it."""
    jobs = server.scheduler._jobs
    ready = dict(jobs.ready_queues.ready_indexes())
    promoted = undelivered(server)
    for job in current_jobs(server):
        if job.is_new:
            assert job.location is Location.NOWHERE, (
                f"job {job.id} has a place before it is durable"
            )
            continue
        if job.state in TIMED:
            index, pair, place = jobs.timers, (job.due_at, job.id), Location.TIMERS
            if job.location is Location.NOWHERE and is_left(jobs.backlog, pair):
                continue
        elif job.state is State.QUEUED:
            if job.id in promoted:
                continue
            assert job.ready_key in ready, f"the ready index of job {job.id} is closed"
            index, pair, place = ready[job.ready_key], (job.rank, job.id), Location.READY
        else:
            continue
        is_here = index.horizon is None or pair <= index.horizon
        assert (job.id in index) == is_here, f"job {job.id} is lost at {pair}"
        assert job.location is (place if is_here else Location.NOWHERE)


def check_pages(server: Server) -> None:
    """Every ready key that needs a page is found."""
    ready = server.scheduler._jobs.ready_queues
    assert ready.needs_pages() == bool(scan_pages(ready))


def undelivered(server: Server) -> set[int]:
    """Return the jobs that the store has queued itself, before this is delivered."""
    return {
        job_id
        for _, loaded in server.fetched
        if isinstance(loaded, Promoted)
        for _, (_, job_id) in loaded.jobs
    }


def is_left(backlog: Backlog, pair: Pair) -> bool:
    """Return whether the entry will be moved with the backlog."""
    through = backlog.through
    return through is not None and backlog.after < pair <= (through, ID_MAX)


def check_schedules(server: Server) -> None:
    """Every schedule that will fire is in memory, or the store will load it."""
    schedules = server.scheduler._schedule_table
    order, index = schedules.order, schedules.order.index
    gone = set(server.scheduler._jobs.changes.schedules_deleted)
    if server.taken is not None:
        gone |= set(server.taken.schedules_deleted)
    for ident in (server.store.schedules.keys() | schedules._schedules.keys()) - gone:
        schedule = schedules.find(ident) or server.store.schedules[ident]
        at = schedule.next_fire_at
        is_here = (
            not schedule.paused
            and at is not None
            and (index.horizon is None or (at, ident) <= index.horizon)
        )
        is_armed = at is not None and not schedule.paused
        if is_armed and ident not in index:
            is_here = is_here and not is_left(order.backlog, (at or 0, ident))
            is_here = is_here or ident in order
        assert (ident in order) == is_here, f"schedule {schedule.name} is lost"


def check_running(server: Server) -> None:
    """The running jobs are those with a lease, sent or waiting for its commit, and are counted."""
    jobs, workers = server.scheduler._jobs, server.scheduler._workers
    running = [job for job in jobs._jobs.values() if job.state is State.RUNNING]
    leases = {*server.leases, *server.scheduler.unsent}
    assert {job.key for job in running} == leases
    held = [key for worker in workers._workers.values() for key in worker.running]
    assert sorted(held) == sorted(leases)
    counts = Counter(job.queue for job in running)
    for queue_state in jobs.ready_queues.queue_states():
        assert queue_state.running == counts[queue_state.queue.name]


def check_blocked(server: Server) -> None:
    """Every blocked run is known, so that it will be unblocked."""
    scheduler = server.scheduler
    if scheduler._loads or server.requested_loads or server.fetched:
        return  # a schedule is being loaded
    for job in current_jobs(server):
        if job.state is State.BLOCKED:
            assert job.schedule_id is not None
            assert scheduler._schedule_table.blocked.may_have(job.schedule_id)
            schedule = scheduler._schedule_table.find(job.schedule_id)
            assert schedule is None or schedule.blocked is not None


def check_memory(server: Server) -> None:
    """Memory is bounded by the indexes, the running jobs and the uncommitted changes."""
    jobs = server.scheduler._jobs
    indexes = 1 + len(dict(jobs.ready_queues.ready_indexes()))
    most = indexes * 2 * server.capacity + len(server.leases)
    passing = len(jobs.changes.jobs) + len(jobs._committing) + len(jobs._evictable)
    assert len(jobs) <= most + passing
    assert len(server.scheduler._schedule_table.order) <= 5 * server.capacity


def check_counts(server: Server) -> None:
    """The numbers of waiting jobs are those of the store, once it has the changes."""
    if server.taken is None and not undelivered(server):
        assert server.scheduler.waiting.by_queue == server.store.count_waiting()
