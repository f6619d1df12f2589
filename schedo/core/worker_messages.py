"""The messages between remote workers and the engine, and the status of workers.

Instants are microseconds UTC, resources thousandths, waits seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from schedo.core.leases import AttemptResult, Lease, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.outcomes import FailedAttempt
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_pool import WorkerSpec


class Progress(NamedTuple):
    """A progress update of a running attempt."""

    key: LeaseKey
    update: ProgressUpdate


class PollRequest(NamedTuple):
    """One request of a worker: its spec, running attempts, results, and the work it can take."""

    worker: str
    session: str  # identifies one run of the worker's process
    spec: WorkerSpec
    running: frozenset[LeaseKey] | None = None  # None: the request does not list them
    reports: Sequence[AttemptResult] = ()
    progress: Sequence[Progress] = ()
    accept: Sequence[LeaseKey] = ()
    reject: Sequence[tuple[LeaseKey, str]] = ()
    is_draining: bool = False
    wait_s: float = 0.0
    max_leases: int | None = None  # None: one for each free slot
    session_timeout_s: float = 30.0
    supports_offers: bool = False  # else the worker accepts each lease by polling for it
    elsewhere: frozenset[LeaseKey] = frozenset()  # attempts that it runs for other servers
    age_us: int = 0  # for so long, another server had the request before this one
    # When this server got it, or another one sent it: it may be on its way or wait for a load for
    # long. None: now.
    came_at: int | None = None

    @property
    def is_relayed_end(self) -> bool:
        """Whether another server says that the process ends: it takes no name from the next one."""
        return self.is_draining and self.spec.is_relayed


class PollResponse(NamedTuple):
    """The response to a PollRequest."""

    leases: Sequence[Lease] = ()
    offers: AbstractSet[LeaseKey] = frozenset()  # leases that the worker must accept or reject
    stops: Sequence[StopRequest] = ()
    revoked: Sequence[LeaseKey] = ()  # attempts that the worker lists but must not run
    refused: Sequence[tuple[LeaseKey, str]] = ()  # results, with the reason
    drain: bool = False
    sent_at: int = 0  # from then on, the server believes that the worker has the leases


class Run(NamedTuple):
    """A job that a worker runs."""

    job_id: int
    task: str
    started_at: int


class WorkerStatus(NamedTuple):
    """One worker as operators see it."""

    name: str
    kind: Literal["remote", "process", "server", "embedded"]
    state: str
    slots: int
    running: int
    tasks: frozenset[str] | None
    queues: frozenset[str] | None
    labels: Mapping[str, str]
    resources: Mapping[str, int]
    resources_used: Mapping[str, int]
    version: str | None
    connected_at: int | None
    last_seen_at: int | None
    session_timeout_s: float | None
    health: str | None  # a problem of the worker, or None
    isolated: bool = False  # it runs only poison suspects
    runs: Sequence[Run] = ()  # the oldest of them, if it runs many
    reserved: int = 0  # how many of the slots that count as running are held for reservations
    is_relayed: bool = False  # it polls another server, which asks in its name


class ProgressLine(NamedTuple):
    """A progress message and the instant at which it arrived."""

    at: int
    progress: Progress


class Reservation(NamedTuple):
    """Slots that are held for the client that has the nonce."""

    id: str
    nonce: str
    workers: list[str]
    expires_at: int


class Decided(NamedTuple):
    """An invocation of which each job is accepted or has ended."""

    id: str
    rejections: int  # the number of workers that rejected an offer
    unstarted: AbstractSet[int] = frozenset()  # the jobs that no worker has begun, and none will


class Notes(NamedTuple):
    """What the scheduler has noted since the last turn, for the engine."""

    results: list[AttemptResult]  # of live attempts; a recovery must apply them again
    decided: list[Decided]
    progress: list[Progress]  # of attempts that remote workers run
    warnings: list[str]  # about remote workers, for the log
    failed: list[FailedAttempt]
    adopted: list[Lease]  # of the previous server, which its workers continue
    offered: Sequence[WorkerSpec]  # of each new worker
