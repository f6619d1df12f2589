"""What somebody outside the server sees, in the order they see it; the checkers read nothing else.

Two times: `at` is the time that has passed since the world began, which never jumps; `wall` is what
the clocks showed. Both are microseconds. `line` numbers the connection of one worker to one server.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from schedo.core.changes import Changes
from schedo.core.leases import Lease, Outcome, StopRequest
from schedo.core.model import Job, LeaseKey, Schedule


@dataclass(frozen=True, slots=True)
class Seen:
    """Something that happened."""

    at: int
    wall: int


@dataclass(frozen=True, slots=True)
class Called(Seen):
    """A program asks something of the server; `subject` is what it asks about."""

    call: int
    name: str
    subject: Any


@dataclass(frozen=True, slots=True)
class Answered(Seen):
    """The server answers with a value or an error's code; `died`: there will be no answer."""

    call: int
    value: Any = None
    code: str | None = None
    status: int = 200


@dataclass(frozen=True, slots=True)
class Opened(Seen):
    """A server works."""

    server: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Died(Seen):
    """A server is gone, and its workers with it."""

    server: int


@dataclass(frozen=True, slots=True)
class Attached(Seen):
    """A worker has connected."""

    line: int
    worker: str


@dataclass(frozen=True, slots=True)
class Detached(Seen):
    """The server has been told that the worker is gone."""

    line: int


@dataclass(frozen=True, slots=True)
class Started(Seen):
    """A worker was given an attempt."""

    line: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class StopAsked(Seen):
    """A worker was asked to end an attempt."""

    line: int
    stop: StopRequest


@dataclass(frozen=True, slots=True)
class Reported(Seen):
    """A worker says how an attempt ended; is_live: it holds it, and says so for the first time."""

    key: LeaseKey
    outcome: Outcome
    is_live: bool


@dataclass(frozen=True, slots=True)
class Stored(Seen):
    """A commit is on disk."""

    changes: Changes


@dataclass(frozen=True, slots=True)
class Pruned(Seen):
    """Ended jobs were deleted."""

    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoreFailed(Seen):
    """The store has answered with an error."""

    code: str


@dataclass(frozen=True, slots=True)
class Stepped(Seen):
    """The wall clock was set by so much; `wall` is what it shows now."""

    delta_us: int


@dataclass(frozen=True, slots=True)
class Marked(Seen):
    """From here on the disk holds instants under this offset of the clock; see ClockMark."""

    offset_us: int
    base_us: int


@dataclass(frozen=True, slots=True)
class Calmed(Seen):
    """From here on nothing fails, nobody interferes and every worker does its work."""


@dataclass(frozen=True, slots=True)
class Probed(Seen):
    """How many records the server holds, how many it may hold, and how it contradicts its store."""

    held: int
    bound: int
    contradictions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Broke(Seen):
    """The server has logged an internal error."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended(Seen):
    """What the server says at the end: about everything, and how many jobs are running."""

    jobs: tuple[Job, ...]
    schedules: tuple[Schedule, ...]
    running: int


Trace = list[Seen]


def digest(trace: Trace) -> str:
    """Return a hash of all that happened."""
    sha = hashlib.sha256()
    for event in trace:
        sha.update(repr(event).encode())
    return sha.hexdigest()
