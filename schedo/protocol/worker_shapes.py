"""Schemas of the responses about workers, invocations and reservations, for openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.protocol.fields import Instant
from schedo.protocol.lease_keys import LeaseText
from schedo.protocol.schemas import DurationText, Id, JobAnswer, TriggerName


class LeaseAnswer(Struct, forbid_unknown_fields=True, kw_only=True):
    """An attempt that the worker has to run."""

    lease: LeaseText
    job: Id
    attempt: int
    task: str
    queue: str
    payload: Any
    timeout: Annotated[float, Meta(description="Seconds.")] | UnsetType = UNSET
    scheduled_for: Instant
    trigger: TriggerName
    missed_count: int | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET
    at_most_once: bool | UnsetType = UNSET
    suspect: Annotated[bool, Meta(description="Run it isolated.")] | UnsetType = UNSET
    offer: Annotated[bool, Meta(description="Accept or reject it first.")] | UnsetType = UNSET


class StopAnswer(Struct, forbid_unknown_fields=True):
    """An attempt that the worker has to stop."""

    lease: LeaseText
    reason: Literal["cancel", "timeout"]


class RefusedAnswer(Struct, forbid_unknown_fields=True):
    """A result that came too late: the attempt had ended, or another worker has the job."""

    lease: LeaseText
    status: int
    code: str
    detail: str


class WorkAnswer(Struct, forbid_unknown_fields=True):
    """The response to a worker; heartbeat and session_timeout are seconds."""

    protocol: int
    epoch: int
    leases: list[LeaseAnswer]
    stop: list[StopAnswer]
    revoked: list[LeaseText]
    refused: list[RefusedAnswer]
    heartbeat: float
    session_timeout: float
    drain: bool


class WorkerAnswer(Struct, forbid_unknown_fields=True, kw_only=True):
    """A worker. Without tasks or queues it takes any, without health it is healthy."""

    name: str
    kind: Literal["remote", "process", "server", "embedded"]
    state: str
    slots: int
    running: int
    free: int
    tasks: list[str] | UnsetType = UNSET
    queues: list[str] | UnsetType = UNSET
    labels: dict[str, str]
    resources: dict[str, float]
    resources_used: dict[str, float]
    version: str | UnsetType = UNSET
    connected_at: Instant | UnsetType = UNSET
    last_seen_at: Instant | UnsetType = UNSET
    session_timeout: DurationText | UnsetType = UNSET
    health: str | UnsetType = UNSET


class WorkerPage(Struct, forbid_unknown_fields=True):
    """All known workers."""

    items: list[WorkerAnswer]


class ProgressAnswer(Struct, forbid_unknown_fields=True):
    """The progress of a running attempt."""

    at: Instant
    attempt: int
    percent: float | UnsetType = UNSET
    message: str | UnsetType = UNSET
    log: str | UnsetType = UNSET
    stdout: str | UnsetType = UNSET


class ProgressPage(Struct, forbid_unknown_fields=True):
    """The latest progress of a job, oldest first."""

    items: list[ProgressAnswer]


class ReservationAnswer(Struct, forbid_unknown_fields=True):
    """Reserved slots; a request with the nonce uses them."""

    id: str
    nonce: str
    workers: list[str]
    expires_at: Instant


class JobsAnswer(Struct, forbid_unknown_fields=True):
    """The jobs of an invocation with a count above 1."""

    items: list[JobAnswer]
