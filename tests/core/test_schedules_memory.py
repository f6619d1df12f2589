"""Schedules that are not in memory, and recovery of schedules after a crash."""

from __future__ import annotations

import pytest

from schedo.core.commands import (
    Cancel,
    DeleteSchedule,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RetryJob,
    Triggered,
    TriggerSchedule,
)
from schedo.core.leases import Completed, Stopped
from schedo.core.loads import LoadSchedule
from schedo.core.model import Overlap, Retry, Rule, Schedule
from schedo.core.outcomes import NEXT_RUN_FIRST, find_reason
from schedo.core.states import State
from schedo.errors import NotFound
from tests.core.builders import (
    HOUR,
    MINUTE,
    SECOND,
    T0,
    every,
    make_schedule_spec,
    make_spec,
    worker_spec,
)
from tests.core.scheduled import T1, made, states
from tests.core.server import Server

# Schedules that memory does not hold.


def test_memory_holds_the_soonest_schedules_and_all_of_them_fire() -> None:
    server = Server(capacity=4, slots=0)
    specs = [make_schedule_spec(f"s{n}", Rule(at=n * MINUTE)) for n in range(1, 31)]
    ids = [server.put(spec, T1).id for spec in specs]
    server.settle(T1)
    assert len(server.scheduler._schedule_table._schedules) <= 8

    for minute in range(1, 31):
        server.settle(minute * MINUTE)

    assert [[run.scheduled_for for run in server.runs(ident)] for ident in ids] == [
        [n * MINUTE] for n in range(1, 31)
    ]


def test_a_commit_takes_a_bounded_number_of_fires_and_the_rest_follow() -> None:
    server = Server(capacity=1_000, slots=0)
    for number in range(300):
        made(server, name=f"s{number}", rule=every(60))
    server.round(0)

    for _ in range(10):
        server.tick(MINUTE)

    assert len(server.scheduler._jobs.changes.schedules) == 200
    wake_at = server.scheduler.next_wake_at()
    assert wake_at is None or wake_at > MINUTE, "it does not turn in vain while the commit runs"
    server.settle(MINUTE)
    assert len(server.store.jobs) == 300


def test_a_schedule_that_is_put_again_unchanged_while_its_page_is_loaded_still_fires() -> None:
    server = Server()
    schedule = made(server)
    server.crash(SECOND)
    server.take()
    server.commit()
    pages = server.requested_loads
    server.send(PutSchedule(make_schedule_spec()), SECOND)
    server.take()
    server.commit()
    server.requested_loads += pages
    server.fetch()

    server.deliver(SECOND)
    server.settle(MINUTE)

    assert len(server.runs(schedule.id)) == 1


def out_of_memory(overlap: Overlap) -> tuple[Server, Schedule]:
    """Return a schedule that is not in memory, with a running and a blocked run."""
    server = Server(capacity=1)
    rule = every(60, end_at=2 * MINUTE)
    schedule = made(server, rule=rule, overlap=overlap)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    assert server.scheduler._schedule_table.find("s") is None
    assert states(server, schedule) == [State.RUNNING, State.BLOCKED]
    return server, schedule


@pytest.mark.parametrize("overlap", [Overlap.BUFFER_ONE, Overlap.CANCEL_OTHER])
def test_a_blocked_run_is_unblocked_although_its_schedule_is_out_of_memory(
    overlap: Overlap,
) -> None:
    server, schedule = out_of_memory(overlap)
    first, second = server.runs(schedule.id)

    server.report(first.id, Completed(), HOUR)

    assert server.run(HOUR) == [second.id]


def test_a_blocked_run_that_ends_while_its_schedule_is_evicted_is_not_tracked() -> None:
    server, schedule = out_of_memory(Overlap.BUFFER_ONE)
    first, second = server.runs(schedule.id)

    server.cancel(second.id, HOUR)
    server.complete(first.id, HOUR)
    server.settle(HOUR)

    assert states(server, schedule) == [State.COMPLETED, State.CANCELLED]
    assert not server.scheduler._schedule_table.blocked.may_have(schedule.id)


def test_a_manually_retried_run_of_an_evicted_schedule_is_active() -> None:
    server = Server(slots=0)
    schedule = made(server, rule=every(60, end_at=MINUTE))
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    server.cancel(run.id, HOUR)
    server.round(HOUR)
    assert server.scheduler._schedule_table.find("s") is None

    server.change(RetryJob(run.id), HOUR)

    assert server.trigger("s", HOUR) == Triggered(None, run.id)


def test_uncommitted_changes_correct_a_loaded_schedule() -> None:
    server = Server(slots=0)
    schedule = made(server, rule=every(60, end_at=MINUTE))
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    assert server.scheduler._schedule_table.find("s") is None
    server.send(ResumeSchedule("s"), HOUR)
    server.take()
    server.commit()
    server.fetch()  # with the run as an active one
    server.cancel(run.id, HOUR)
    loaded = server.fetched[0][1]
    assert loaded.active == [run.id]

    assert server.scheduler._schedule_table.track(loaded).active == []


# After a crash.


def test_a_blocked_run_is_unblocked_after_a_crash_if_the_run_before_it_has_ended() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)

    server.crash(150 * SECOND)
    server.attach(worker_spec())
    assert server.run(150 * SECOND) == [first.id]
    assert server.state(second.id) is State.BLOCKED
    server.complete(first.id, 151 * SECOND)

    assert server.run(151 * SECOND) == [second.id]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["its schedule is there", "is deleted"])
def test_a_blocked_run_is_unblocked_after_a_restart_if_the_server_died_before_it_was(
    is_deleted: bool,
) -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)
    server.complete(first.id, 121 * SECOND)
    if is_deleted:
        server.send(DeleteSchedule(schedule.name), 121 * SECOND)
    server.take()
    server.commit()  # the end is durable, the blocked run is not yet loaded
    assert server.store.jobs[second.id].state is State.BLOCKED

    server.crash(122 * SECOND)
    server.attach(worker_spec())

    assert server.run(122 * SECOND) == [second.id]
    assert not server.scheduler._schedule_table.blocked.may_have(schedule.id)


def test_of_two_blocked_runs_after_a_crash_the_later_one_is_unblocked() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    server.tick(3 * MINUTE)
    server.take()
    server.commit()  # the third is durable, the cancel of the second is not
    first, second, third = server.runs(schedule.id)
    assert states(server, schedule) == [State.RUNNING, State.BLOCKED, State.BLOCKED]

    server.crash(181 * SECOND)
    server.attach(worker_spec())
    server.settle(181 * SECOND)

    assert server.state(first.id) is State.CANCELLED  # it was asked to stop, and then lost
    assert server.state(second.id) is State.CANCELLED
    assert server.state(third.id) is State.RUNNING


def test_a_put_of_the_same_name_after_a_crash_finds_the_stored_schedule() -> None:
    server = Server()
    schedule = made(server)
    server.crash(SECOND)

    again = server.put(make_schedule_spec(), SECOND)

    assert again.id == schedule.id


def test_an_unknown_schedule_is_not_found() -> None:
    server = Server()

    with pytest.raises(NotFound, match="no schedule 'other'"):
        server.apply(PauseSchedule("other"), T0)
    assert server.scheduler._schedule_table.find(99) is None


def test_a_schedule_deleted_while_it_is_loaded_unblocks_its_blocked_run() -> None:
    server, schedule = out_of_memory(Overlap.BUFFER_ONE)
    first, second = server.runs(schedule.id)

    server.send(DeleteSchedule("s"), HOUR)
    server.complete(first.id, HOUR)

    assert server.run(HOUR) == [second.id]


def test_a_run_that_is_retried_while_its_schedule_is_loaded_counts_as_unfinished() -> None:
    server = Server(slots=0)
    schedule = made(server, rule=every(60, end_at=MINUTE))
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    server.cancel(run.id, HOUR)
    server.round(HOUR)
    answers: list[Triggered] = []

    server.send(RetryJob(run.id), HOUR)
    server.send(TriggerSchedule("s"), HOUR, answers.append)
    server.round(HOUR)

    assert answers == [Triggered(None, run.id)]


def test_a_page_of_schedules_for_a_trimmed_index_is_dropped() -> None:
    server = Server(capacity=1, slots=0)
    for n in range(1, 6):
        server.put(make_schedule_spec(f"s{n}", Rule(at=n * HOUR)), T1)
    server.settle(T1)
    server.crash(T1)
    server.take()
    server.commit()
    server.fetch()
    server.deliver(T1)  # the first page: s1
    server.tick(HOUR)
    server.take()
    server.commit()
    server.fetch()  # the second page: s2
    for n in range(6, 9):
        spec = make_schedule_spec(f"s{n}", Rule(at=MINUTE))
        server.scheduler.apply(PutSchedule(spec), T1, {LoadSchedule(spec.name): None})

    server.deliver(HOUR)
    for hour in range(1, 6):
        server.settle(hour * HOUR)

    assert len(server.store.jobs) == 8


def test_a_blocked_run_that_was_cancelled_before_it_was_unblocked_stays_cancelled() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)
    server.send(Cancel(second.id), 121 * SECOND)

    server.complete(first.id, 121 * SECOND)
    server.settle(121 * SECOND)

    assert server.state(second.id) is State.CANCELLED


def test_a_replacing_run_starts_after_a_crash_if_the_replaced_run_has_ended() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)
    server.report(first.id, Stopped(), 121 * SECOND)
    server.take()
    server.commit()

    server.crash(122 * SECOND)
    server.attach(worker_spec())

    assert server.run(122 * SECOND) == [second.id]


def test_a_lost_cancel_request_is_repeated_after_a_crash() -> None:
    server = Server(capacity=1, slots=0)
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.submit_all([make_spec() for _ in range(3)], SECOND)
    server.settle(MINUTE)
    server.tick(2 * MINUTE)
    server.take()
    server.commit()  # the second is durable; the first, out of memory, is not yet cancelled
    assert states(server, schedule) == [State.QUEUED, State.BLOCKED]

    server.crash(121 * SECOND)
    server.settle(121 * SECOND)

    assert states(server, schedule) == [State.CANCELLED, State.QUEUED]


def test_a_replacing_run_cancels_no_later_run_after_a_crash() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    server.trigger(schedule.name, 2 * MINUTE, Overlap.ALLOW)
    server.settle(2 * MINUTE)
    assert states(server, schedule) == [State.RUNNING, State.BLOCKED, State.RUNNING]

    server.crash(2 * MINUTE)
    server.attach(worker_spec())
    server.settle(2 * MINUTE)

    assert states(server, schedule) == [State.CANCELLED, State.BLOCKED, State.RUNNING]
    assert server.runs(schedule.id)[2].cancel_requested_at is None


def test_of_two_buffered_runs_after_a_crash_the_first_one_starts_first() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    server.complete(server.runs(schedule.id)[0].id, 121 * SECOND)
    server.tick(3 * MINUTE)
    server.take()
    server.commit()  # the second is about to be woken, the third waits for it
    _, second, third = server.runs(schedule.id)
    assert states(server, schedule) == [State.COMPLETED, State.BLOCKED, State.BLOCKED]

    server.crash(181 * SECOND)
    server.attach(worker_spec())

    assert server.run(181 * SECOND) == [second.id]
    server.complete(second.id, 182 * SECOND)
    assert server.run(182 * SECOND) == [third.id]


@pytest.mark.parametrize(
    ("overlap", "delay_us", "state"),
    [
        (Overlap.SKIP, 2 * HOUR, State.FAILED),
        (Overlap.SKIP, 10 * MINUTE, State.RETRYING),
        (Overlap.ALLOW, 2 * HOUR, State.RETRYING),
    ],
)
def test_a_run_is_retried_only_before_the_next_fire_although_its_schedule_is_out_of_memory(
    overlap: Overlap, delay_us: int, state: State
) -> None:
    server = Server(capacity=4, slots=100)
    retry = Retry(3, "fixed", delay_us, jitter=0.0)
    hourly = made(
        server, name="hourly", rule=every(3_600), job=make_spec(retry=retry), overlap=overlap
    )
    for number in range(30):
        made(server, name=f"s{number}", rule=every(1_800))
    server.settle(HOUR)
    assert server.scheduler._schedule_table.find(hourly.id) is None

    [run] = server.runs(hourly.id)
    server.fail(run.id, HOUR + SECOND)
    server.settle(HOUR + SECOND)

    failure = server.job(run.id).failure
    assert server.state(run.id) is state
    assert failure is not None
    assert find_reason(failure.message) == (NEXT_RUN_FIRST if state is State.FAILED else "")
