"""The transition of a job when one of its attempts ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schedo.core.leases import (
    Blame,
    Completed,
    Failed,
    Lost,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    StopReason,
)
from schedo.core.model import Failure, Job, Options, Trigger
from schedo.core.outcomes import PAST_UNTIL, OutcomeContext, Transition, requeue_rank, settle
from schedo.core.states import State
from tests.core.builders import DAY, MINUTE, SECOND, make_job, tries
from tests.core.fake_store import OOPS

NOW = 100 * SECOND


def running(**fields: Any) -> Job:
    fields = {"options": Options(retry=tries(3)), "attempt": 1, **fields}
    return make_job(state=State.RUNNING, **fields)


def settled(
    job: Job,
    outcome: Outcome,
    *,
    stop: StopReason | None = None,
    retry_before: int | None = None,
    random: float = 0.5,
) -> Transition:
    return settle(job, outcome, OutcomeContext(NOW, random, stop, retry_before))


def test_a_failed_attempt_is_retried_after_its_delay() -> None:
    assert settled(running(), Failed(OOPS)) == Transition(
        State.RETRYING, "failed", OOPS, due_at=110 * SECOND, failures=1
    )


def test_the_last_allowed_failure_fails_the_job() -> None:
    assert settled(running(failures=2), Failed(OOPS)) == Transition(
        State.FAILED, "failed", OOPS, failures=1
    )


def test_max_attempts_counts_failures_and_not_lost_or_released_attempts() -> None:
    assert settled(running(attempt=50, failures=1), Failed(OOPS)).state is State.RETRYING


def test_a_failure_that_is_not_retryable_fails_the_job() -> None:
    assert settled(running(), Failed(OOPS, retryable=False)).state is State.FAILED


def test_a_handler_may_set_the_delay_of_its_retry() -> None:
    outcome = Failed(OOPS, retry_in_us=7 * SECOND)

    assert settled(running(), outcome).due_at == 107 * SECOND


def test_a_job_without_a_retry_policy_is_tried_once() -> None:
    assert settled(running(options=Options()), Failed(OOPS)).state is State.FAILED


@pytest.mark.parametrize(
    ("until_at", "state"),
    [(110 * SECOND, State.FAILED), (110 * SECOND + 1, State.RETRYING)],
    ids=["at the deadline", "before it"],
)
def test_a_job_is_not_retried_at_or_after_its_retry_deadline(until_at: int, state: State) -> None:
    job = running(options=Options(retry=tries(3, until_at=until_at)))

    assert settled(job, Failed(OOPS)).state is state


def test_a_failure_that_is_not_retried_although_attempts_are_left_says_why() -> None:
    late = running(options=Options(retry=tries(3, until_at=NOW)))
    long = msgspec.structs.replace(OOPS, message="x" * 3_000)

    at_fire = settled(running(), Failed(OOPS), retry_before=NOW).failure
    past_end = settled(late, Failed(long)).failure

    assert at_fire is not None
    assert past_end is not None
    assert at_fire.message == (
        f"{OOPS.message}; it is not retried, because the next run of its schedule comes first"
    )
    assert past_end.message.endswith("x" + PAST_UNTIL)
    assert len(past_end.message) == 2_048


@pytest.mark.parametrize(
    ("next_fire_at", "state"),
    [(110 * SECOND, State.FAILED), (110 * SECOND + 1, State.RETRYING)],
    ids=["at the next fire", "before it"],
)
def test_a_run_is_not_retried_past_the_next_fire(next_fire_at: int, state: State) -> None:
    assert settled(running(), Failed(OOPS), retry_before=next_fire_at).state is state


def test_a_snooze_waits_and_uses_up_no_attempt() -> None:
    assert settled(running(), Snoozed(MINUTE)) == Transition(
        State.SCHEDULED, "snoozed", due_at=160 * SECOND
    )


@pytest.mark.parametrize(
    ("outcome", "why"),
    [(Snoozed(MINUTE), "snoozed"), (Stopped(), "interrupted"), (Released(), "released")],
)
def test_an_invocation_cannot_snooze(outcome: Outcome, why: str) -> None:
    found = settled(running(trigger=Trigger.INVOKE), outcome)

    assert found.state is State.FAILED
    assert found.failure is not None
    assert found.failure.type == why


def test_a_timeout_counts_as_a_failure() -> None:
    job = running(options=Options(retry=tries(3), timeout_us=1_500_000))

    assert settled(job, Stopped(), stop=StopReason.TIMEOUT) == Transition(
        State.RETRYING,
        "timeout",
        Failure("timeout", "timed out after 1.5 s"),
        due_at=110 * SECOND,
        failures=1,
    )


@pytest.mark.parametrize("outcome", [Released(), Stopped()], ids=["released", "stopped"])
def test_a_released_job_is_requeued_ahead_of_others_and_counts_neither_failure_nor_loss(
    outcome: Outcome,
) -> None:
    assert settled(running(), outcome) == Transition(State.QUEUED, "released", requeue_first=True)


def test_a_stopped_attempt_of_a_job_that_runs_at_most_once_is_not_repeated() -> None:
    job = running(options=Options(retry=tries(3), at_most_once=True))

    result = settled(job, Stopped())

    assert result.state is State.FAILED
    assert result.evidence == "released"
    assert result.failure == Failure(
        "interrupted", "the attempt was stopped, and this job is not started twice"
    )


def test_an_attempt_that_never_started_is_released_even_if_the_job_runs_at_most_once() -> None:
    job = running(options=Options(at_most_once=True))

    assert settled(job, Released()).state is State.QUEUED


@pytest.mark.parametrize("losses", [0, 1])
def test_a_lost_job_is_requeued_ahead_of_others_and_counts_no_failure(losses: int) -> None:
    assert settled(running(losses=losses), Lost("gone")) == Transition(
        State.QUEUED, "lost", Failure("lost", "gone"), requeue_first=True, losses=1
    )


def test_a_job_that_was_lost_beside_others_becomes_a_poison_suspect_without_a_loss() -> None:
    result = settled(running(losses=2), Lost("gone", Blame.SHARED))

    assert (result.state, result.losses, result.poison_suspect) == (State.QUEUED, 0, True)


def test_a_loss_with_a_known_cause_is_never_counted() -> None:
    lost = Lost("the server was restarted", Blame.NONE)

    assert settled(running(losses=2), lost) == Transition(
        State.QUEUED, "lost", Failure("lost", "the server was restarted"), requeue_first=True
    )


def test_an_at_most_once_job_is_not_repeated_whatever_caused_its_loss() -> None:
    job = running(options=Options(at_most_once=True, retry=tries(3)))

    result = settled(job, Lost("the server was restarted", Blame.NONE))

    assert (result.state, result.losses) == (State.FAILED, 0)


@pytest.mark.parametrize("blame", Blame)
def test_a_lost_invocation_is_tried_a_second_time_whatever_caused_its_loss(blame: Blame) -> None:
    job = running(trigger=Trigger.INVOKE)

    assert settled(job, Lost("gone", blame)).state is State.QUEUED
    assert settled(running(trigger=Trigger.INVOKE, losses=1), Lost("gone", blame)).state is (
        State.FAILED
    )


@pytest.mark.parametrize("outcome", [Lost("gone"), Released()], ids=["lost", "released"])
def test_a_poison_suspect_whose_attempt_is_lost_or_released_stays_one(outcome: Outcome) -> None:
    assert settled(running(poison_suspect=True), outcome).poison_suspect


@pytest.mark.parametrize("outcome", [Failed(OOPS), Snoozed(5)])
def test_a_poison_suspect_whose_attempt_fails_or_snoozes_is_cleared(outcome: Outcome) -> None:
    assert not settled(running(poison_suspect=True), outcome).poison_suspect


def test_the_third_loss_fails_the_job() -> None:
    assert settled(running(losses=2), Lost("gone")) == Transition(
        State.FAILED, "lost", Failure("lost", "gone"), losses=1
    )


def test_a_lost_attempt_of_a_job_that_runs_at_most_once_fails_it() -> None:
    job = running(options=Options(at_most_once=True, retry=tries(3)))

    assert settled(job, Lost()).state is State.FAILED


@pytest.mark.parametrize(
    ("outcome", "result", "failure"),
    [
        (Completed(b"1"), b"1", None),
        (Failed(OOPS), None, OOPS),
        (Stopped(), None, None),
        (Released(), None, None),
        (Snoozed(5), None, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_requested_cancel_wins_over_the_outcome_of_the_attempt(
    outcome: Outcome, result: bytes | None, failure: Failure | None
) -> None:
    job = running(cancel_requested_at=NOW - 1)

    assert settled(job, outcome, stop=StopReason.CANCEL) == Transition(
        State.CANCELLED, "cancelled", failure, result
    )


def test_a_job_that_is_lost_after_a_cancel_is_cancelled() -> None:
    job = running(cancel_requested_at=NOW - 1)

    assert settled(job, Lost("gone"), stop=StopReason.CANCEL) == Transition(
        State.CANCELLED, "lost", Failure("lost", "gone"), losses=1
    )


def test_a_requeued_job_goes_ahead_of_any_priority() -> None:
    job = make_job(due_at=NOW)

    assert requeue_rank(job, 0) == NOW - 366 * DAY
    assert requeue_rank(job, 0) < NOW - 9 * 24 * 60 * MINUTE
