"""Schemas of the responses about workers, invocations and reservations, for openapi.json."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from schedo.protocol.fields import Instant
from schedo.protocol.schemas import DurationText, JobAnswer


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
