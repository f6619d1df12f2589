"""The history of a job is made of its record and its attempts."""

from __future__ import annotations

from schedo.core.changes import AttemptRecord
from schedo.core.model import Failure, Job
from schedo.core.states import State
from schedo.protocol.history import ENTRIES_MAX, HistoryResponse
from schedo.protocol.times import render_instant
from tests.core.builders import SECOND, T0, make_job

FAILURE = Failure("Error", "it broke")


def lines(history: HistoryResponse) -> list[str]:
    """Return the entries as texts, with seconds instead of instants."""
    seconds = {render_instant(T0 + second * SECOND): second for second in range(400)}
    return [
        " ".join(
            str(part)
            for part in (seconds[each.at], each.what, each.attempt, each.worker, each.outcome)
            if isinstance(part, str | int)
        )
        for each in history.items
    ]


def at(second: int) -> int:
    return T0 + second * SECOND


def failed(attempt: int, due: int | None, outcome: str = "failed") -> AttemptRecord:
    second = 10 * attempt
    due_at = None if due is None else at(due)
    return AttemptRecord(1, attempt, 1, "w", at(second), at(second + 1), outcome, FAILURE, due_at)


def job(**fields: object) -> Job:
    return make_job(**{"created_at": T0, "due_at": T0, **fields})  # type: ignore[arg-type]


def test_a_job_that_completes_at_once_has_one_attempt() -> None:
    done = job(state=State.COMPLETED, attempt=1, worker="w", started_at=at(2), ended_at=at(3))

    history = HistoryResponse.of(done, [], at(1))

    assert lines(history) == [
        "0 created",
        "0 due 1",
        "1 durable",
        "2 started 1 w",
        "3 ended 1 w completed",
        "3 finished completed",
    ]
    assert history.durable_at == render_instant(at(1))
    assert not history.truncated


def test_the_first_due_instant_survives_a_retry() -> None:
    waiting = job(state=State.RETRYING, attempt=2, due_at=at(30))

    history = HistoryResponse.of(waiting, [failed(1, 9), failed(2, 19, "timeout")], None)

    assert history.first_due_at == render_instant(at(9))
    assert lines(history) == [
        "0 created",
        "9 due 1",
        "10 started 1 w",
        "11 ended 1 w failed",
        "19 due 2",
        "20 started 2 w",
        "21 ended 2 w timeout",
        "30 due 3",
    ]


def test_a_waiting_job_has_its_due_instant_to_come() -> None:
    assert lines(HistoryResponse.of(job(due_at=at(60)), [], None)) == ["0 created", "60 due 1"]


def test_a_running_job_that_is_asked_to_stop_has_not_ended() -> None:
    running = job(
        state=State.RUNNING,
        attempt=2,
        worker="v",
        due_at=at(19),
        started_at=at(20),
        cancel_requested_at=at(25),
    )

    assert lines(HistoryResponse.of(running, [failed(1, None)], None)) == [
        "0 created",
        "10 started 1 w",
        "11 ended 1 w failed",
        "19 due 2",
        "20 started 2 v",
        "25 cancel_requested",
    ]


def test_a_job_that_failed_ends_with_its_last_attempt() -> None:
    ended = job(state=State.FAILED, attempt=1, started_at=at(10), ended_at=at(11))

    assert lines(HistoryResponse.of(ended, [failed(1, 9)], None))[-2:] == [
        "11 ended 1 w failed",
        "11 finished failed",
    ]


def test_a_job_that_never_ran_is_finished_without_an_attempt() -> None:
    assert lines(HistoryResponse.of(job(state=State.CANCELLED, ended_at=at(5)), [], None)) == [
        "0 created",
        "0 due 1",
        "5 finished cancelled",
    ]


def test_a_job_that_ends_before_its_time_was_never_due() -> None:
    cancelled = job(state=State.CANCELLED, due_at=at(60), ended_at=at(5))

    assert lines(HistoryResponse.of(cancelled, [], None)) == ["0 created", "5 finished cancelled"]


def test_a_stale_result_is_only_an_end() -> None:
    stale = AttemptRecord(1, 1, 1, None, None, at(30), "stale", None)
    done = job(state=State.COMPLETED, attempt=1, started_at=at(2), ended_at=at(3))

    assert lines(HistoryResponse.of(done, [stale], None))[-2:] == [
        "3 finished completed",
        "30 ended 1 stale",
    ]


def test_the_history_is_bounded_and_keeps_its_beginning() -> None:
    many = [failed(number, None) for number in range(1, 31)] * 10

    history = HistoryResponse.of(job(state=State.RETRYING, attempt=30, due_at=at(399)), many, None)

    assert (len(history.items), history.truncated) == (ENTRIES_MAX, True)
    assert (lines(history)[0], lines(history)[-1]) == ("0 created", "399 due 31")
