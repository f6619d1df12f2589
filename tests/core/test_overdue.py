"""More overdue jobs than memory holds: they move in bulk and delay no other job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from schedo.core.commands import Accepted, Cancel, JobCommand, Reschedule, RunNow
from schedo.core.limits import PAGE_ENTRIES_MAX
from schedo.core.loads import Promoted
from schedo.core.model import Queue
from schedo.core.states import State
from tests.core.builders import DAY, HOUR, MINUTE, SECOND, T0, make_spec, tries, worker_spec
from tests.core.server import Server

COUNT = 60
RESTART = HOUR  # the jobs became due a minute after T0


def overdue(**fields: Any) -> tuple[Server, list[int]]:
    """Return a server started an hour after COUNT jobs came due, and their ids."""
    server = Server(capacity=4, slots=0)
    specs = [make_spec(delay_us=MINUTE + n, queue="old", **fields) for n in range(COUNT)]
    made = [server.submit(spec).id for spec in specs]
    server.settle(T0)
    server.crash(RESTART)
    server.attach(worker_spec(slots=2))
    server.round(RESTART)
    return server, made


def test_a_job_that_becomes_due_while_the_backlog_moves_does_not_wait_for_it() -> None:
    server, _ = overdue()
    server.set_queue(Queue("old", paused=True))
    server.tick(RESTART)
    server.round(RESTART)
    late = []

    for n in range(4):
        now = RESTART + n * SECOND
        server.tick(now)
        fresh = server.submit(make_spec(delay_us=SECOND // 2), now)
        server.round(now)
        server.round(now)
        started = [lease.key.job_id for lease in server.tick(now + SECOND // 2)]
        late += [n] if started != [fresh.id] else []
        server.complete(fresh.id, now + SECOND // 2)
        assert server.scheduler._jobs.backlog, "the backlog is not yet moved"

    assert late == []


def test_overdue_jobs_run_in_the_order_in_which_they_were_due() -> None:
    server, made = overdue()
    started: list[int] = []

    while len(started) < COUNT:
        server.settle(RESTART)
        running = [key.job_id for key in server.leases]
        assert running, "some are left behind"
        for job_id in running:
            started.append(job_id)
            server.complete(job_id, RESTART)

    assert started == made
    assert server.scheduler._jobs.backlog.through is None


def test_a_backlog_is_queued_by_the_store_and_not_row_by_row() -> None:
    server, made = overdue()
    server.set_queue(Queue("old", paused=True))
    written = 0

    for _ in range(4 * COUNT):
        server.tick(RESTART)
        written += len(server.scheduler._jobs.changes.jobs)
        server.round(RESTART)

    assert {server.state(job_id) for job_id in made} == {State.QUEUED}
    assert written <= 8, "but for the first page, which memory had"
    assert len(server.scheduler._jobs) <= 12


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (Cancel, State.CANCELLED),
        (RunNow, State.QUEUED),
        (partial(Reschedule, due_at=DAY), State.SCHEDULED),
    ],
    ids=["cancel", "run now", "reschedule"],
)
def test_a_command_on_an_overdue_job_takes_effect_at_any_moment_of_the_move(
    command: Callable[[int], JobCommand], state: State
) -> None:
    for steps in range(8):
        server, made = overdue()
        server.set_queue(Queue("old", paused=True))
        server.tick(RESTART)
        for step in (server.take, server.commit, server.fetch):
            if steps % 4 > [server.take, server.commit, server.fetch].index(step):
                step()
        target = made[20 + steps]
        server.send(command(target), RESTART)
        if server.taken is not None:
            server.commit()
        if server.requested_loads:
            server.fetch()
        server.deliver(RESTART)
        server.settle(RESTART)

        assert server.state(target) is state
        assert server.store.jobs[target].state is state


def test_overdue_jobs_whose_expiry_has_come_expire() -> None:
    server, made = overdue(expires_in_us=2 * MINUTE)
    server.set_queue(Queue("old", paused=True))
    server.settle(RESTART)

    server.expire_and_trim(RESTART)
    server.settle(RESTART)

    assert {server.state(job_id) for job_id in made} == {State.EXPIRED}


def test_overdue_retries_are_tried_again() -> None:
    server = Server(capacity=4, slots=COUNT)
    made = [server.submit(make_spec(retry=tries(2))).id for _ in range(COUNT)]
    server.run(T0)
    for job_id in made:
        server.fail(job_id, T0)
    server.round(T0)
    server.crash(RESTART)
    server.attach(worker_spec(slots=COUNT))

    assert sorted(server.run(RESTART)) == made


def test_many_jobs_of_one_instant_do_not_delay_the_job_right_after_them() -> None:
    server = Server(capacity=4, slots=2)
    server.set_queue(Queue("old", paused=True))
    for _ in range(COUNT):
        server.submit(make_spec(delay_us=MINUTE, queue="old"))
    fresh = server.submit(make_spec(delay_us=MINUTE + 1))
    server.settle(T0)

    for turn in range(8):
        server.tick(MINUTE + turn * 5_000)
        if fresh.id in [key.job_id for key in server.leases]:
            return
        server.round(MINUTE + turn * 5_000)

    raise AssertionError("it waits for those that were due before it")


def test_a_crash_in_the_middle_of_a_backlog_loses_no_job() -> None:
    server, made = overdue()
    server.set_queue(Queue("old", paused=True))
    for _ in range(5):
        server.tick(RESTART)
        server.round(RESTART)
    queued = [job.id for job in server.store.jobs.values() if job.state is State.QUEUED]
    assert 0 < len(queued) < COUNT

    server.crash(RESTART + SECOND)
    server.settle(RESTART + SECOND)

    assert {server.state(job_id) for job_id in made} == {State.QUEUED}


def test_one_sweep_expires_all_due_jobs_one_page_after_each_commit() -> None:
    server = Server(capacity=4, slots=0)
    specs = [make_spec(expires_in_us=MINUTE) for _ in range(3 * PAGE_ENTRIES_MAX)]
    made = [answer.job.id for answer in server.submit_all(specs) if isinstance(answer, Accepted)]
    server.expire_and_trim(HOUR)
    server.expire_and_trim(HOUR)
    server.round(HOUR)
    assert len(server.scheduler._jobs.changes.jobs) == PAGE_ENTRIES_MAX

    server.settle(HOUR)

    assert {server.state(job_id) for job_id in made} == {State.EXPIRED}


def test_a_job_that_the_store_queues_while_it_changes_in_memory_is_queued_in_memory_too() -> None:
    server, _ = overdue()
    server.set_queue(Queue("old", paused=True))
    promoted: list[int] = []
    while not promoted:  # until the store has queued a page of the backlog
        server.deliver(RESTART)
        server.tick(RESTART)
        server.take()
        server.commit()
        server.fetch()
        pages = [found for _, found in server.fetched if isinstance(found, Promoted)]
        promoted = [job_id for page in pages for _, (_, job_id) in page.jobs]
    target = promoted[-1]
    held = server.store.jobs[target].copy()
    held.state = State.SCHEDULED
    server.scheduler._jobs.track(held)  # loaded for a command, in its earlier state

    server.deliver(RESTART)
    server.settle(RESTART)

    assert server.state(target) is State.QUEUED
    assert server.store.jobs[target].state is State.QUEUED
