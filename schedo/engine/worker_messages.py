"""What a worker asks of the engine and is answered, and what is seen of the workers.

Instants are microseconds UTC, resources thousandths, waits seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from schedo.core.leases import AttemptResult, Lease, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.worker_pool import WorkerSpec


class Progress(NamedTuple):
    """What a worker says about an attempt that runs."""

    key: LeaseKey
    percent: float | None = None
    message: str | None = None
    log: str | None = None
    partial: str | None = None  # of its output so far


class PollRequest(NamedTuple):
    """One request of a worker: what it is, what it runs, what has ended, what it wants."""

    worker: str
    session: str  # one for each life of the worker's process
    offer: WorkerSpec
    running: frozenset[LeaseKey] | None = None  # None: it says nothing about that
    reports: Sequence[AttemptResult] = ()
    progress: Sequence[Progress] = ()
    accept: Sequence[LeaseKey] = ()
    reject: Sequence[tuple[LeaseKey, str]] = ()
    is_draining: bool = False
    wait_s: float = 0.0
    max_leases: int | None = None  # leases at most; None: as many as it has slots free
    session_timeout_s: float = 30.0
    supports_offers: bool = False  # else a lease given to a poll is accepted already


class PollResponse(NamedTuple):
    """The answer to an Ask."""

    leases: Sequence[Lease] = ()
    offers: AbstractSet[LeaseKey] = (
        frozenset()
    )  # those of the leases that the worker has yet to accept
    stops: Sequence[StopRequest] = ()
    revoked: Sequence[LeaseKey] = ()
    refused: Sequence[tuple[LeaseKey, str]] = ()  # with the reason
    drain: bool = False


class WorkerStatus(NamedTuple):
    """One worker as people see it."""

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
    health: str | None  # None: it does its work; else what is wrong


class ProgressLine(NamedTuple):
    """Progress and when it came."""

    at: int
    progress: Progress


class Reservation(NamedTuple):
    """Slots that are kept for whoever knows the nonce."""

    id: str
    nonce: str
    workers: list[str]
    expires_at: int
