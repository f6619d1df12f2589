"""What becomes of a job when an attempt of it ends. Pure: a job and an outcome in, a settlement
out.
"""

from __future__ import annotations

import msgspec

from schedo.core.backoff import delay_us
from schedo.core.leases import (
    Blame,
    Completed,
    Failed,
    HandedBack,
    Lost,
    Outcome,
    Snoozed,
    Stopped,
    StopReason,
)
from schedo.core.lifecycle import State
from schedo.core.limits import FRONT_US, LOSSES_MAX
from schedo.core.model import ONCE, Failure, Job, Trigger

INVOKE_LOSSES_MAX = 2  # of any kind: who asked for a retry gets one


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The job's next state, and what else changes."""

    state: State
    evidence: str | None = None  # the ended attempt's outcome, if it did not complete the job
    failure: Failure | None = None
    result: bytes | None = None
    due_at: int | None = None  # for a job that waits again
    is_front: bool = False  # before all others of its lane
    failures: int = 0  # to add
    losses: int = 0  # to add
    is_suspect: bool = False  # runs alone next time


class Circumstances(msgspec.Struct, frozen=True, gc=False):
    """What a settlement depends on beside job and outcome."""

    now: int
    random: float  # in [0, 1)
    stop: StopReason | None  # why the attempt was told to stop, if it was
    retry_before: int | None  # no retry at or after this instant: the schedule's next fire


def settle(job: Job, outcome: Outcome, around: Circumstances) -> Settlement:
    """Return what becomes of the running job."""
    if job.cancel_requested_at is not None and not isinstance(outcome, Lost):
        return _cancelled(outcome)
    match outcome:
        case Completed(result):
            return Settlement(State.COMPLETED, result=result)
        case Failed():
            return _failed(job, outcome, around)
        case Snoozed(delay):
            return _snoozed(job, around.now + delay)
        case Stopped() if around.stop is StopReason.TIMEOUT:
            seconds = (job.options.timeout_us or 0) / 1_000_000
            failure = Failure("timeout", f"timed out after {seconds:g} s")
            return _failed(job, Failed(failure), around, evidence="timeout")
        case Stopped() if job.options.at_most_once or job.trigger is Trigger.INVOKE:
            failure = Failure("interrupted", "it was stopped, and is not begun a second time")
            return Settlement(State.FAILED, "handed_back", failure)
        case HandedBack() if job.trigger is Trigger.INVOKE:  # who asked has to ask again
            failure = Failure("handed-back", "its worker gave it back before it ran")
            return Settlement(State.FAILED, "handed_back", failure)
        case Stopped() | HandedBack():
            return Settlement(State.QUEUED, "handed_back", is_front=True, is_suspect=job.is_suspect)
        case Lost():  # pragma: no branch - these are all outcomes
            return _lost(job, outcome)


def _snoozed(job: Job, due_at: int) -> Settlement:
    if job.trigger is Trigger.INVOKE:  # who asked waits for it now
        failure = Failure("snoozed", "it put itself off, and what is invoked runs now or never")
        return Settlement(State.FAILED, "snoozed", failure)
    return Settlement(State.SCHEDULED, "snoozed", due_at=due_at)


def _cancelled(outcome: Outcome) -> Settlement:
    """Cancelled wins, whatever the handler still said; its result is kept as evidence."""
    result = outcome.result if isinstance(outcome, Completed) else None
    failure = outcome.failure if isinstance(outcome, Failed) else None
    return Settlement(State.CANCELLED, "cancelled", failure, result)


def _failed(
    job: Job, outcome: Failed, around: Circumstances, evidence: str = "failed"
) -> Settlement:
    retry = job.options.retry or ONCE
    failures = job.failures + 1
    give_up = Settlement(State.FAILED, evidence, outcome.failure, failures=1)
    if not outcome.retryable or failures >= retry.max_attempts:
        return give_up
    delay = outcome.retry_in_us
    if delay is None:
        delay = delay_us(retry, failures, around.random)
    due_at = around.now + delay
    for bound in (retry.until_at, around.retry_before):
        if bound is not None and due_at >= bound:
            return give_up
    return Settlement(State.RETRYING, evidence, outcome.failure, due_at=due_at, failures=1)


def _lost(job: Job, outcome: Lost) -> Settlement:
    """A lost worker is not the job's fault, so no failure is counted; but if the job alone may have
    killed it, it counts as a loss, or such a job would be tried for ever."""
    failure = Failure("lost", outcome.message)
    is_invoked = job.trigger is Trigger.INVOKE
    losses = 1 if outcome.blame is Blame.SOLE or is_invoked else 0
    if job.cancel_requested_at is not None:
        return Settlement(State.CANCELLED, "lost", failure, losses=losses)
    losses_max = INVOKE_LOSSES_MAX if is_invoked else LOSSES_MAX
    if job.options.at_most_once or job.losses + losses >= losses_max:
        return Settlement(State.FAILED, "lost", failure, losses=losses)
    is_suspect = job.is_suspect or outcome.blame is Blame.SHARED
    return Settlement(
        State.QUEUED, "lost", failure, is_front=True, losses=losses, is_suspect=is_suspect
    )


def front_rank(job: Job, offset_us: int) -> int:
    """Return the rank of a job that goes before all others of its lane."""
    return job.due_at - offset_us - FRONT_US
