"""The pauses of the whole server: what they stop, and what goes on."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.commands import (
    Command,
    CommitReservation,
    ConfigureQueue,
    Invoke,
    Reserve,
)
from schedo.core.model import (
    Catchup,
    Decision,
    JobSpec,
    Overlap,
    Pause,
    PauseScope,
    ReadyKey,
    Retry,
)
from schedo.core.pause_commands import PauseQueue, PauseServer, ResumeServer
from schedo.core.queue_pause import QueuePause
from schedo.core.states import State
from schedo.errors import NoCapacity
from tests.core.builders import HOUR, MINUTE, SECOND, T0, every, make_spec, tries, worker_spec
from tests.core.scheduled import T1, kinds, made, states
from tests.core.server import Server

STARTS, SCHEDULES = PauseScope


def pause(server: Server, *scopes: PauseScope, now: int = T1, **options: Any) -> list[Pause]:
    found = server.apply(PauseServer(scopes, **options), now)
    server.round(now)
    return found


def resume(server: Server, *scopes: PauseScope, now: int) -> list[Pause]:
    return server.apply(ResumeServer(scopes), now)


def test_no_job_starts_while_starts_are_paused() -> None:
    server = Server()
    pause(server, STARTS)
    due, later = server.submit(make_spec()), server.submit(make_spec(delay_us=MINUTE))

    assert server.run(HOUR) == []

    assert [server.state(job.id) for job in (due, later)] == [State.QUEUED, State.QUEUED]
    resume(server, STARTS, now=HOUR)
    assert server.run(HOUR) == [due.id, later.id]


def test_running_attempts_go_on_and_end() -> None:
    server = Server()
    job = server.submit(make_spec())
    server.run(T0)

    pause(server, STARTS)

    assert server.complete(job.id, SECOND).state is State.COMPLETED


def test_a_worker_that_attaches_gets_no_job_of_a_paused_server() -> None:
    server = Server(slots=0)
    server.submit(make_spec())
    pause(server, STARTS)

    server.attach(worker_spec(slots=1))

    assert server.run(SECOND) == []


def test_no_schedule_fires_while_schedules_are_paused() -> None:
    server = Server()
    schedule = made(server)

    pause(server, SCHEDULES)
    server.settle(HOUR)

    assert server.runs(schedule.id) == []
    assert server.decisions(schedule.id) == []
    assert server.scheduler.next_wake_at() is None
    assert server.scheduler.delays(HOUR).schedule_due_at is None


@pytest.mark.parametrize("failed_at", [119 * SECOND, 5 * MINUTE])
def test_a_run_that_fails_while_schedules_are_paused_is_retried(failed_at: int) -> None:
    server = Server()
    schedule = made(server, job=make_spec(retry=tries(5)))
    server.settle(MINUTE)
    pause(server, SCHEDULES, now=MINUTE)

    server.fail(server.runs(schedule.id)[0].id, failed_at)

    assert states(server, schedule) == [State.RETRYING]


def test_a_run_that_fails_while_only_starts_are_paused_leaves_the_next_one_its_turn() -> None:
    server = Server()
    schedule = made(server, job=make_spec(retry=tries(5)))
    server.settle(MINUTE)
    pause(server, STARTS, now=MINUTE)

    server.fail(server.runs(schedule.id)[0].id, 119 * SECOND)

    assert states(server, schedule) == [State.FAILED]


def test_a_run_out_of_memory_that_fails_while_schedules_are_paused_is_retried() -> None:
    server = Server(capacity=4, slots=100)
    retry = Retry(3, "fixed", 2 * HOUR, jitter=0.0)
    hourly = made(server, name="hourly", rule=every(3_600), job=make_spec(retry=retry))
    for number in range(30):
        made(server, name=f"s{number}", rule=every(1_800))
    server.settle(HOUR)
    assert server.scheduler._schedule_table.find(hourly.id) is None
    pause(server, SCHEDULES, now=HOUR)

    [run] = server.runs(hourly.id)
    server.fail(run.id, HOUR + SECOND)
    server.settle(HOUR + SECOND)

    assert server.state(run.id) is State.RETRYING


@pytest.mark.parametrize(("catchup", "runs"), [(Catchup.LATEST, 1), (Catchup.ALL, 3)])
def test_the_instants_of_a_pause_are_caught_up_as_those_of_a_downtime(
    catchup: Catchup, runs: int
) -> None:
    server = Server()
    schedule = made(server, catchup=catchup, overlap=Overlap.ALLOW)
    pause(server, SCHEDULES)
    server.settle(3 * MINUTE)

    resume(server, SCHEDULES, now=3 * MINUTE)
    server.settle(3 * MINUTE)

    assert len(server.runs(schedule.id)) == runs
    assert Decision.FIRED in kinds(server, schedule)


def test_a_schedule_fires_into_a_queue_that_does_not_start() -> None:
    server = Server()
    schedule = made(server)
    pause(server, STARTS)

    server.settle(MINUTE)

    assert states(server, schedule) == [State.QUEUED]


def test_a_pause_ends_by_itself() -> None:
    server = Server()
    job = server.submit(make_spec())
    pause(server, STARTS, SCHEDULES, until=HOUR)
    assert server.scheduler.next_wake_at() == HOUR

    assert server.run(HOUR - 1) == []
    assert server.run(HOUR) == [job.id]

    assert server.scheduler.pauses() == []
    assert not any(server.store.pauses.values())


def test_only_the_pauses_that_are_due_end() -> None:
    server = Server()
    pause(server, STARTS, until=MINUTE)
    pause(server, SCHEDULES)

    server.settle(HOUR)

    assert [each.scope for each in server.scheduler.pauses()] == [SCHEDULES]


def test_a_pause_outlives_the_server() -> None:
    server = Server()
    paused = pause(server, STARTS, note="moving house", until=HOUR)
    server.submit(make_spec())

    server.crash(SECOND)
    server.attach(worker_spec(slots=1))

    assert server.scheduler.pauses() == paused == [Pause(STARTS, T1, "moving house", HOUR)]
    assert server.run(SECOND) == []


def test_a_second_pause_replaces_the_first() -> None:
    server = Server()
    pause(server, STARTS, note="first", until=HOUR)

    assert pause(server, STARTS, note="second") == [Pause(STARTS, T1, "second")]


def test_a_resume_without_a_pause_changes_nothing() -> None:
    server = Server()
    server.round(T0)

    assert resume(server, STARTS, SCHEDULES, now=T0) == []
    assert not server.scheduler.take_changes()


@pytest.mark.parametrize(
    "command",
    [
        Invoke("call", JobSpec("work"), 1),
        Reserve("r", "n", ReadyKey("default", "work"), 1, SECOND),
        CommitReservation("r", "n", JobSpec("work")),
    ],
    ids=lambda command: type(command).__name__,
)
def test_nothing_is_placed_at_once_while_starts_are_paused(command: Command[Any]) -> None:
    server = Server()
    pause(server, STARTS)

    with pytest.raises(NoCapacity, match="the server is paused"):
        server.apply(command, T1)


def test_the_pause_explains_why_a_job_waits() -> None:
    server = Server()
    job = server.submit(make_spec())
    pause(server, SCHEDULES)
    assert server.scheduler.explain(server.job(job.id)).reasons == ["it is next"]

    pause(server, STARTS)
    [plain] = server.scheduler.explain(server.job(job.id)).reasons
    pause(server, STARTS, note="the disk is being moved")
    [noted] = server.scheduler.explain(server.job(job.id)).reasons

    assert plain == "the server is paused: no job starts until it is resumed"
    assert noted == (
        "the server is paused (the disk is being moved): no job starts until it is resumed"
    )


# Queues.


def test_a_paused_queue_starts_no_job_until_its_end() -> None:
    server = Server()
    queue = server.apply(PauseQueue("mail", "moving", HOUR), T1)
    job, other = server.submit(make_spec(queue="mail"), T1), server.submit(make_spec(), T1)

    assert queue.pause == QueuePause(T1, "moving", HOUR)
    assert server.run(HOUR - 1) == [other.id]
    assert server.scheduler.next_wake_at() == HOUR
    assert server.run(HOUR) == [other.id, job.id]
    assert (server.store.queues["mail"].paused, server.store.queues["mail"].pause) == (False, None)


def test_a_pause_of_a_queue_ends_in_time_after_a_crash() -> None:
    server = Server()
    server.apply(PauseQueue("mail", "moving", HOUR), T1)
    job = server.submit(make_spec(queue="mail"), T1)
    server.crash(MINUTE)
    server.attach(worker_spec())

    assert server.run(HOUR - 1) == []
    assert server.run(HOUR) == [job.id]


def test_a_resumed_queue_has_no_pause_and_a_later_pause_is_another_one() -> None:
    server = Server()
    server.apply(PauseQueue("mail", "moving", HOUR), T1)
    resumed = server.apply(ConfigureQueue("mail", {"paused": False}), T1)
    again = server.apply(PauseQueue("mail"), MINUTE)
    server.settle(2 * HOUR)

    assert (resumed.paused, resumed.pause) == (False, None)
    assert (again.paused, again.pause) == (True, QueuePause(MINUTE))
    assert server.store.queues["mail"].paused


def test_other_limits_leave_the_pause_of_a_queue_as_it_is() -> None:
    server = Server()
    paused = server.apply(PauseQueue("mail", "moving", HOUR), T1)

    changed = server.apply(ConfigureQueue("mail", {"weight": 5, "paused": True}), MINUTE)

    assert changed.pause == paused.pause
    assert server.scheduler.next_wake_at() == HOUR


def test_why_names_the_note_and_the_end_of_a_pause() -> None:
    server = Server()
    server.apply(PauseQueue("mail", "moving", 1_800_000_000_500_000), T1)
    pause(server, STARTS, note="upgrade")
    job = server.submit(make_spec(queue="mail"), T1)

    assert server.scheduler.explain(server.job(job.id)).reasons == [
        "the server is paused (upgrade): no job starts until it is resumed",
        "queue mail is paused (moving) until 2027-01-15T08:00:00Z",
    ]
