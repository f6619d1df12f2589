"""The results of engine calls that are not plain jobs, schedules or queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from schedo.core.commands import Triggered
from schedo.core.model import JobSpec, Pause, Queue
from schedo.core.pauses import describe_pause
from schedo.errors import SchedoError

T = TypeVar("T")


class Accepted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The result for one spec; conflict: `job` is the earlier job that holds the unique key."""

    job: T
    conflict: bool


Record = dict[str, Any]  # a job in the form of the HTTP API
# Submits jobs to this server; the shards must be its own, else it raises Unavailable.
SubmitHere = Callable[
    [Sequence[JobSpec], Collection[int]], Awaitable[list[Accepted[int] | SchedoError]]
]


class OtherOwners(Protocol):
    """The servers of a cluster, for calls about jobs that need not be this server's.

    `here` carries a call out in this server.
    """

    async def submit(
        self, specs: Sequence[JobSpec], here: SubmitHere
    ) -> list[Accepted[int] | SchedoError]:
        """Submit each job to the server that must have it; the result has the ids in this order."""

    async def wait(
        self, job_id: int, timeout_s: float, here: Callable[[float], Awaitable[Record]]
    ) -> Record:
        """Return the job when it has ended, or its current state after the timeout."""

    async def cancel(self, job_id: int, here: Callable[[], Awaitable[Record]]) -> Record:
        """Cancel a waiting job; request a running one to stop."""


class QueueStatus(NamedTuple):
    """The limits of a queue and the number of its unfinished jobs by state."""

    queue: Queue
    running: int
    waiting: dict[str, int]
    counted_at: int  # when the waiting jobs were counted
    oldest_due_at: int | None = None  # of its first due jobs; None: memory has none


class Health(NamedTuple):
    """Whether jobs would start in time, and the reasons against it."""

    ready: bool
    reasons: list[str]
    epoch: int
    lag_us: int
    clock_behind_us: int = 0  # how far the clock is behind the newest instant of the store


def copy_triggered(reply: Triggered) -> Triggered:
    """Return what a trigger did, with a copy of its run."""
    return reply._replace(job=reply.job.copy()) if reply.job is not None else reply


def describe_pauses(pauses: Sequence[Pause]) -> str:
    """Return what is paused, with the notes and the ends, as a text."""
    alike: dict[str, list[str]] = {}
    for pause in pauses:
        alike.setdefault(describe_pause(pause.note, pause.until), []).append(pause.scope.value)
    return "; ".join(", ".join(scopes) + how for how, scopes in alike.items())
