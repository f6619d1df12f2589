"""The events that are observable outside the server, in their order; the checkers read only these.

An event has two times in microseconds: `at` is the elapsed time since the world began, which never
jumps, and `wall` is the wall clock. `connection` is the number of a worker's connection.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from schedo.core.changes import Changes
from schedo.core.leases import Lease, Outcome, StopRequest
from schedo.core.model import Job, LeaseKey, Schedule


@dataclass(frozen=True, slots=True)
class Event:
    """The base class of all events."""

    at: int
    wall: int


@dataclass(frozen=True, slots=True)
class Called(Event):
    """A client calls the server; `subject` is the job, schedule or queue of the call."""

    call: int
    name: str
    subject: Any


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """The server replies with a value or an error's code; `died`: there will be no reply."""

    call: int
    value: Any = None
    code: str | None = None
    status: int = 200


@dataclass(frozen=True, slots=True)
class Opened(Event):
    """A server has started."""

    server: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Died(Event):
    """A server has died, and its worker connections with it."""

    server: int


@dataclass(frozen=True, slots=True)
class Freezes(Event):
    """A server begins to freeze. It takes no turn before all its changes are durable."""

    server: int


@dataclass(frozen=True, slots=True)
class Froze(Event):
    """A server has closed its store for the next one; its workers go on with their attempts."""

    server: int


@dataclass(frozen=True, slots=True)
class Reopened(Event):
    """A server that had frozen serves again."""

    server: int


@dataclass(frozen=True, slots=True)
class Attached(Event):
    """A worker has connected; server: that it ends with, 0 for a remote worker."""

    connection: int
    worker: str
    server: int


@dataclass(frozen=True, slots=True)
class Detached(Event):
    """The server has detached the worker."""

    connection: int


@dataclass(frozen=True, slots=True)
class Started(Event):
    """A worker has received a lease."""

    connection: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class Doubted(Event):
    """The server of a remote worker has died, and the start of this attempt is not on disk."""

    connection: int
    key: LeaseKey


@dataclass(frozen=True, slots=True)
class Kept(Event):
    """A server has let a remote worker go on with an attempt that was doubted."""

    connection: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class Revoked(Event):
    """A server has taken an attempt from a worker that ran it."""

    connection: int
    key: LeaseKey


@dataclass(frozen=True, slots=True)
class StopSent(Event):
    """A worker has received a stop request."""

    connection: int
    stop: StopRequest


@dataclass(frozen=True, slots=True)
class Reported(Event):
    """A worker reports an outcome; is_live: it holds the lease and has not reported it before."""

    key: LeaseKey
    outcome: Outcome
    is_live: bool


@dataclass(frozen=True, slots=True)
class Stored(Event):
    """A commit is on disk."""

    changes: Changes


@dataclass(frozen=True, slots=True)
class Pruned(Event):
    """Ended jobs were deleted."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoreFailed(Event):
    """A call of the store has failed."""

    code: str


@dataclass(frozen=True, slots=True)
class Stepped(Event):
    """The wall clock was set by this amount; `wall` is the new time."""

    delta_us: int


@dataclass(frozen=True, slots=True)
class Marked(Event):
    """From here on, the instants on disk have this offset of the clock; see ClockMark."""

    offset_us: int
    base_us: int


@dataclass(frozen=True, slots=True)
class Calmed(Event):
    """From here on there are no faults and no random requests; workers complete all attempts."""


@dataclass(frozen=True, slots=True)
class Probed(Event):
    """The number of records in memory, its bound, and contradictions between memory and disk."""

    held: int
    bound: int
    contradictions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Broke(Event):
    """The server has logged an internal error."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The state of all jobs and schedules at the end, and the number of running jobs."""

    jobs: tuple[Job, ...]
    schedules: tuple[Schedule, ...]
    running: int


Trace = list[Event]


def digest(trace: Trace) -> str:
    """Return a hash of the whole trace."""
    sha = hashlib.sha256()
    for event in trace:
        sha.update(repr(event).encode())
    return sha.hexdigest()
