"""Leases, how attempts end, and what is said about them between the core and the workers."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from schedo.core.model import Failure, LeaseKey, Options, Trigger

# How an attempt ends. A worker reports one of these with its lease.


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """The handler returned; result is JSON."""

    result: bytes | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The handler raised, or the command did not succeed."""

    failure: Failure
    retryable: bool = True
    retry_in_us: int | None = None


class Snoozed(msgspec.Struct, frozen=True, tag="snoozed"):
    """The handler asks to be run again later; no attempt is used up."""

    delay_us: int


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The worker ended the attempt because it was told to (cancel or timeout)."""


class Released(msgspec.Struct, frozen=True, tag="released"):
    """The worker could not finish it (drain): back to the front of the lane, uncounted."""


class Blame(StrEnum):
    """What an attempt may have to do with the death of the process that it was lost with."""

    SOLE = "sole"  # it alone may have caused it: a loss, and those are limited
    SHARED = "shared"  # so may others that ran there: no loss, and it runs alone until that shows
    NONE = "none"  # it ran elsewhere, or the cause is known: no loss


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """The attempt was lost with its worker or its server, which is never a failure of the job."""

    message: str = "the worker was lost"
    blame: Blame = Blame.SOLE


Outcome = Completed | Failed | Snoozed | Stopped | Released | Lost


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """A worker's right to one attempt, with all it needs to run it."""

    key: LeaseKey
    worker: str
    task: str
    queue: str
    payload: bytes | None  # None: read it from the store first
    options: Options
    scheduled_for: int  # the instant of the schedule, or the due time
    trigger: Trigger
    missed_count: int
    is_suspect: bool = False  # what started it died beside others, so it is to run apart from them


class CapturedOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stream of an attempt, bounded: the first and the last bytes, and how many there were."""

    stream: Literal["stdout", "stderr", "body"]
    head: bytes
    tail: bytes
    total_bytes: int


class AttemptResult(msgspec.Struct, frozen=True, array_like=True):
    """What a worker says when an attempt has ended."""

    key: LeaseKey
    outcome: Outcome
    output: tuple[CapturedOutput, ...] = ()


class StopReason(StrEnum):
    """Why a running attempt is told to stop."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"


class StopRequest(NamedTuple):
    """Tell the worker to end this attempt."""

    key: LeaseKey
    worker: str
    reason: StopReason
