"""Leases, outcomes of attempts, and the other values that core and workers exchange."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple, get_args

import msgspec

from schedo.core.limits import PAYLOAD_BYTES_MAX
from schedo.core.model import PLAIN, Failure, LeaseKey, Options, Trigger

# A usual lease as JSON, without its options and its payload, and large options.
_FIELDS_BYTES = 512
_OPTIONS_BYTES = 4_096

# Outcomes. A worker reports one of them with the key of its lease.


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """The handler returned. The result is JSON."""

    result: bytes | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The handler raised an exception, or the command failed."""

    failure: Failure
    retryable: bool = True
    retry_in_us: int | None = None


class Snoozed(msgspec.Struct, frozen=True, tag="snoozed"):
    """The handler requested to run again later. This uses up no attempt of the retry policy."""

    delay_us: int


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The worker stopped the attempt because of a stop request (cancel or timeout) or a drain."""


class Released(msgspec.Struct, frozen=True, tag="released"):
    """The worker gave the attempt back, for example on a drain. The job is requeued first, and
    nothing is counted."""


class Blame(StrEnum):
    """Whether an attempt may have caused the death of the process that it was lost with."""

    SOLE = (
        "sole"  # only this attempt can have caused it: one loss is counted, and losses are limited
    )
    SHARED = "shared"  # other attempts ran there: no loss is counted, and the job runs isolated
    NONE = "none"  # it ran in another process, or the cause is known: no loss is counted


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """The attempt was lost with its worker or its server. This is never a failure of the job."""

    message: str = "the worker was lost"
    blame: Blame = Blame.SOLE


Outcome = Completed | Failed | Snoozed | Stopped | Released | Lost


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The right of a worker to run one attempt, with all that the worker needs for it."""

    key: LeaseKey
    worker: str
    task: str
    queue: str
    payload: bytes | None  # None: the payload is only in the store
    options: Options
    scheduled_for: int  # the instant of the schedule, or the due instant
    trigger: Trigger
    missed_count: int
    is_suspect: bool = False  # a poison suspect: it runs isolated, or one at a time
    failures: int = 0  # of earlier attempts
    max_attempts: int = 1
    started_at: int = 0  # by the clock of the machine that runs it


def measure_lease(lease: Lease) -> int:
    """Return about the largest size of the lease in a response, in bytes."""
    payload = lease.payload
    if payload is None:
        return PAYLOAD_BYTES_MAX
    return _FIELDS_BYTES + len(payload) + (0 if lease.options is PLAIN else _OPTIONS_BYTES)


StreamName = Literal["stdout", "stderr", "body"]
STREAMS: tuple[str, ...] = get_args(StreamName)


class CapturedOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """One output stream of an attempt: its first and last bytes, and the total number of bytes."""

    stream: StreamName
    head: bytes
    tail: bytes
    total_bytes: int


class AttemptResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A worker's report of an ended attempt.

    ran_us: how long the worker ran it; None if the worker does not say so, or has not begun it.
    """

    key: LeaseKey
    outcome: Outcome
    output: tuple[CapturedOutput, ...] = ()
    ran_us: int | None = None


class StopReason(StrEnum):
    """The reason why the scheduler stops an attempt."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"


class StopRequest(NamedTuple):
    """A request to a worker to stop an attempt."""

    key: LeaseKey
    worker: str
    reason: StopReason
