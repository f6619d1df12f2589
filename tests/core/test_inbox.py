"""Jobs from an inbox: their ids, their instants, and what becomes of one that is not accepted."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.changes import Changes
from schedo.core.ids import SQL_SLOT, first_id, is_from_sql, render_id
from schedo.core.inbox import Enqueued, RowsFailed, TakeIn
from schedo.core.job_maker import JobMaker
from schedo.core.job_table import JobTable
from schedo.core.limits import DURATION_MAX
from schedo.core.model import Job, JobSpec, Unique
from schedo.core.states import State
from schedo.errors import Conflict, Unavailable
from tests.core.builders import HOUR, MINUTE, SECOND, make_spec
from tests.core.server import Server

ID = first_id(SECOND) + SQL_SLOT


def take_in(server: Server, *rows: Enqueued, now: int = MINUTE) -> list[Job]:
    """Take the rows; return the jobs, which are durable."""
    server.send(TakeIn(rows), now)
    server.settle(now)
    return [server.job(row.id) for row in rows]


def row(spec: JobSpec, number: int = 0, **fields: Any) -> Enqueued:
    return Enqueued(ID + 64 * number, spec, **fields)


def test_a_job_has_the_id_of_its_row_and_was_created_then() -> None:
    (job,) = take_in(Server(slots=0), row(make_spec()))

    assert is_from_sql(job.id)
    assert (job.id, job.created_at, job.due_at, job.state) == (ID, SECOND, SECOND, State.QUEUED)


def test_a_delay_counts_from_the_instant_of_the_row() -> None:
    over, waits = take_in(
        Server(slots=0), row(make_spec(delay_us=SECOND)), row(make_spec(delay_us=HOUR), 1)
    )

    assert (over.state, over.due_at) == (State.QUEUED, 2 * SECOND)
    assert (waits.state, waits.due_at) == (State.SCHEDULED, HOUR + SECOND)


def test_a_row_of_a_clock_that_is_ahead_is_due_now() -> None:
    ahead = Enqueued(first_id(HOUR) + SQL_SLOT, make_spec())

    (job,) = take_in(Server(slots=0), ahead)

    assert (job.id, job.created_at, job.state) == (ahead.id, MINUTE, State.QUEUED)


def test_a_job_runs_when_it_is_durable_and_the_commit_names_its_row() -> None:
    server = Server(slots=1)
    server.send(TakeIn([row(make_spec())]), MINUTE)

    assert server.tick(MINUTE) == []
    assert server.scheduler.has_changes
    server.settle(MINUTE)

    assert server.state(ID) is State.RUNNING
    assert Changes(taken_in=[ID]).has_others


def test_a_row_whose_unique_key_is_held_becomes_a_cancelled_job_that_names_the_holder() -> None:
    server = Server(slots=0)
    holder = server.submit(make_spec(unique=Unique("k")), SECOND)

    (stored,) = take_in(server, row(make_spec(unique=Unique("k"), delay_us=HOUR)))
    same, later = take_in(
        server,
        row(make_spec(unique=Unique("m")), 1),
        row(make_spec(unique=Unique("m", on_conflict="reject")), 2),
    )

    assert (stored.state, stored.unique_key, stored.ended_at) == (State.CANCELLED, None, MINUTE)
    assert stored.failure is not None
    assert stored.failure.type == "duplicate"
    assert stored.failure.message.endswith("is queued and holds the key 'k'")
    assert server.state(holder.id) is State.QUEUED
    assert (same.state, later.state) == (State.QUEUED, State.CANCELLED)


def test_a_row_may_replace_the_holder_of_its_key() -> None:
    server = Server(slots=0)
    holder = server.submit(make_spec(unique=Unique("k")), SECOND)

    (job,) = take_in(server, row(make_spec(unique=Unique("k", on_conflict="replace"))))

    assert (job.state, job.unique_key) == (State.QUEUED, "k")
    assert server.state(holder.id) is State.CANCELLED


def test_a_row_that_is_refused_becomes_a_failed_job_with_the_reason() -> None:
    told, out_of_range = take_in(
        Server(slots=1),
        row(make_spec("mail", unique=Unique("k"), run_at=HOUR), refusal="/timeout: is wrong"),
        row(make_spec(delay_us=DURATION_MAX + 1), 1),
    )

    assert (told.state, told.task, told.unique_key) == (State.FAILED, "mail", None)
    assert told.failure is not None
    assert (told.failure.type, told.failure.message) == ("refused", "/timeout: is wrong")
    assert out_of_range.state is State.FAILED
    assert out_of_range.failure is not None
    assert "a hundred years" in out_of_range.failure.message


def test_rows_that_an_earlier_scheduler_may_have_taken_are_not_taken() -> None:
    server = Server(slots=1)

    with pytest.raises(Unavailable, match="read again"):
        server.scheduler.apply(TakeIn([row(make_spec())], lambda: False), MINUTE)

    assert not server.scheduler.has_changes


def test_the_rows_on_which_a_bug_has_failed_are_named_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = JobMaker.make_numbered

    def fail(maker: JobMaker, job_id: int, spec: JobSpec, now: int) -> Job:
        if spec.task == "odd":
            raise Conflict("a bug")
        return make(maker, job_id, spec, now)

    monkeypatch.setattr(JobMaker, "make_numbered", fail)
    rows = [row(make_spec("odd")), row(make_spec(), 1), row(make_spec("odd"), 2)]

    with pytest.raises(RowsFailed, match=f"job {render_id(ID)} and 1 more") as caught:
        Server(slots=1).scheduler.apply(TakeIn(rows), MINUTE)

    reason = "an internal error (Conflict); the log of the server says more"
    assert caught.value.jobs == {rows[0].id: reason, rows[2].id: reason}
    with pytest.raises(RowsFailed, match=f"job {render_id(ID)} cannot"):
        Server(slots=1).scheduler.apply(TakeIn(rows[:2]), MINUTE)


def test_the_rows_on_whose_keys_a_bug_has_failed_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = JobTable.find_key

    def fail(table: JobTable, key: str) -> Job | None:
        if key == "odd":
            raise ValueError("a bug")
        return find(table, key)

    monkeypatch.setattr(JobTable, "find_key", fail)
    rows = [row(make_spec()), row(make_spec(unique=Unique("odd")), 1), row(make_spec(), 2)]

    with pytest.raises(RowsFailed) as caught:
        Server(slots=1).scheduler.apply(TakeIn(rows), MINUTE)

    assert {*caught.value.jobs} == {rows[1].id}
    assert str(caught.value.__cause__) == "a bug"


def test_a_bug_in_a_look_up_that_fails_on_no_single_row_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find, failures = JobTable.find_key, [ValueError("a bug")]

    def fail_once(table: JobTable, key: str) -> Job | None:
        if failures:
            raise failures.pop()
        return find(table, key)

    monkeypatch.setattr(JobTable, "find_key", fail_once)
    rows = [row(make_spec(unique=Unique(key)), n) for n, key in enumerate(("a", "b"))]
    server = Server(slots=1)

    with pytest.raises(ValueError, match="a bug"):
        server.scheduler.apply(TakeIn(rows), MINUTE)

    assert not server.scheduler.has_changes
