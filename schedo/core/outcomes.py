"""The transition of a job when one of its attempts ends: a pure function of job and outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from schedo.core.instants import describe_duration
from schedo.core.leases import (
    Blame,
    Completed,
    Failed,
    Lease,
    Lost,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    StopReason,
)
from schedo.core.limits import LOSSES_MAX, REQUEUE_BOOST_US
from schedo.core.model import ONCE, Failure, Job, LeaseKey, Trigger
from schedo.core.retry import delay_us
from schedo.core.states import State
from schedo.core.value_limits import MESSAGE_CHARACTERS_MAX

# The ends of the messages of failures that are not retried although attempts are left.
NEXT_RUN_FIRST = "; it is not retried, because the next run of its schedule comes first"
PAST_UNTIL = "; it is not retried, because that would be after the end of its retries (until)"

INVOKE_LOSSES_MAX = 2  # losses of any kind: an invoked job that may be repeated runs at most twice


class Transition(msgspec.Struct, frozen=True, gc=False):
    """The next state of a job, and the other fields that change with it."""

    state: State
    evidence: str  # outcome of the attempt, for its record
    failure: Failure | None = None
    result: bytes | None = None
    due_at: int | None = None  # for a job that waits again
    requeue_first: bool = False  # ahead of all other jobs of its ready key
    failures: int = 0  # to add
    losses: int = 0  # to add
    poison_suspect: bool = False  # the next attempt runs isolated


class FailedAttempt(NamedTuple):
    """An attempt that failed or was lost, and what happens to its job, for the log."""

    job_id: int
    task: str
    attempt: int  # 0: there was none, because the job of a SQL client was refused
    outcome: str  # as in AttemptRecord
    failure: Failure | None
    failures: int
    failures_max: int
    state: State  # of the job now
    due_at: int
    payload: bytes | None  # None if it is not in memory
    schedule: str | None = None  # whose run it is


class OutcomeContext(msgspec.Struct, frozen=True, gc=False):
    """The values that determine the transition, in addition to the job and the outcome."""

    now: int
    random: float  # in [0, 1)
    stop: StopReason | None  # the reason, if the worker was requested to stop the attempt
    retry_before: int | None  # the schedule's next fire: no retry at or after it


def settle(  # noqa: C901  # one arm for each kind of outcome
    job: Job, outcome: Outcome, context: OutcomeContext
) -> Transition:
    """Return the transition of the running job."""
    if job.cancel_requested_at is not None and not isinstance(outcome, Lost):
        return _cancelled(outcome)
    assert not isinstance(outcome, Completed), "that needs no decision: see Results"
    match outcome:
        case Failed():
            return _failed(job, outcome, context)
        case Snoozed(delay):
            return _snoozed(job, context.now + delay)
        case Stopped() if context.stop is StopReason.TIMEOUT:
            timeout = describe_duration(job.options.timeout_us or 0)
            failure = Failure("timeout", f"timed out after {timeout}")
            return _failed(job, Failed(failure), context, evidence="timeout")
        case Stopped() if job.options.at_most_once or job.trigger is Trigger.INVOKE:
            failure = Failure(
                "interrupted", "the attempt was stopped, and this job is not started twice"
            )
            return Transition(State.FAILED, "released", failure)
        case Released() if job.trigger is Trigger.INVOKE:  # the caller must invoke it again
            failure = Failure("released", "the worker released it before it ran")
            return Transition(State.FAILED, "released", failure)
        case Stopped() | Released():
            return Transition(
                State.QUEUED, "released", requeue_first=True, poison_suspect=job.poison_suspect
            )
        case Lost():  # pragma: no branch - these are all outcomes
            return _lost(job, outcome)


def _snoozed(job: Job, due_at: int) -> Transition:
    if job.trigger is Trigger.INVOKE:  # the caller waits for it now
        failure = Failure("snoozed", "the handler snoozed, and an invoked job cannot run later")
        return Transition(State.FAILED, "snoozed", failure)
    return Transition(State.SCHEDULED, "snoozed", due_at=due_at)


def _cancelled(outcome: Outcome) -> Transition:
    """A requested cancel wins over any outcome; the handler's result is kept with the job."""
    result = outcome.result if isinstance(outcome, Completed) else None
    failure = outcome.failure if isinstance(outcome, Failed) else None
    return Transition(State.CANCELLED, "cancelled", failure, result)


def _failed(
    job: Job, outcome: Failed, context: OutcomeContext, evidence: str = "failed"
) -> Transition:
    retry = job.options.retry or ONCE
    failures = job.failures + 1
    give_up = Transition(State.FAILED, evidence, outcome.failure, failures=1)
    if not outcome.retryable or failures >= retry.max_attempts:
        return give_up
    delay = outcome.retry_in_us
    if delay is None:
        delay = delay_us(retry, failures, context.random)
    due_at = context.now + delay
    bounds = ((retry.until_at, PAST_UNTIL), (context.retry_before, NEXT_RUN_FIRST))
    for bound, reason in bounds:
        if bound is not None and due_at >= bound:
            failure = add_reason(outcome.failure, reason)
            return Transition(State.FAILED, evidence, failure, failures=1)
    return Transition(State.RETRYING, evidence, outcome.failure, due_at=due_at, failures=1)


def find_reason(message: str) -> str:
    """Return the end of a failure's message that says why there is no retry, or nothing."""
    reasons = (NEXT_RUN_FIRST, PAST_UNTIL)
    return next((reason for reason in reasons if message.endswith(reason)), "")


def add_reason(failure: Failure, reason: str) -> Failure:
    """Return the failure with the reason why there is no retry at the end of its message."""
    message = failure.message[: MESSAGE_CHARACTERS_MAX - len(reason)] + reason
    return msgspec.structs.replace(failure, message=message)


def _lost(job: Job, outcome: Lost) -> Transition:
    """A lost worker is not a failure of the job, so no failure is counted. But if only this job can
    have killed the worker, a loss is counted, or the job would run again forever."""
    failure = Failure("lost", outcome.message)
    is_invoked = job.trigger is Trigger.INVOKE
    losses = 1 if outcome.blame is Blame.SOLE or is_invoked else 0
    if job.cancel_requested_at is not None:
        return Transition(State.CANCELLED, "lost", failure, losses=losses)
    losses_max = INVOKE_LOSSES_MAX if is_invoked else LOSSES_MAX
    if job.options.at_most_once or job.losses + losses >= losses_max:
        return Transition(State.FAILED, "lost", failure, losses=losses)
    is_suspect = job.poison_suspect or outcome.blame is Blame.SHARED
    return Transition(
        State.QUEUED, "lost", failure, requeue_first=True, losses=losses, poison_suspect=is_suspect
    )


def divide_blame(lost: Collection[Lease], isolates: Callable[[str], bool]) -> dict[LeaseKey, Blame]:
    """Return whether each of the attempts that a lost remote worker ran may have killed it.

    isolates: whether the worker runs a task so that its attempts hardly can. One that ran alone may
    have. Among several, an earlier suspect weighs more than what ran beside it. The others become
    suspects when they are lost again, because most workers are lost for other reasons than a job.
    """
    able = [lease for lease in lost if len(lost) == 1 or not isolates(lease.task)]
    causes = [lease for lease in able if lease.is_suspect] or able
    blames = dict.fromkeys((lease.key for lease in lost), Blame.NONE)
    for lease in able:
        if causes == [lease]:
            blames[lease.key] = Blame.SOLE
        elif lease.key.attempt > 1:
            blames[lease.key] = Blame.SHARED
    return blames


def requeue_rank(job: Job, offset_us: int) -> int:
    """Return the rank of a job that goes ahead of all others of its ready key."""
    return job.due_at - offset_us - REQUEUE_BOOST_US
