"""What one commit must make durable, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from schedo.core.leases import CapturedOutput
from schedo.core.model import DecisionRecord, Failure, Job, Queue, Schedule


class AttemptRecord(NamedTuple):
    """An ended attempt that did not complete its job, kept as evidence."""

    job_id: int
    attempt: int
    epoch: int
    worker: str | None
    started_at: int | None
    ended_at: int
    outcome: str  # failed, timeout, snoozed, released, lost, stale
    failure: Failure | None


class Output(NamedTuple):
    """One captured stream of one attempt, as it is stored."""

    job_id: int
    attempt: int
    capture: CapturedOutput


class IdempotencyRecord(NamedTuple):
    """The answer to a request with an Idempotency-Key, stored in its effect's transaction."""

    scope: str  # token id, method, route and key
    fingerprint: bytes  # SHA-256 of the canonical body
    status: int
    body: bytes
    created_at: int


@dataclass(slots=True)
class Changes:
    """What one commit must make durable. Folded: one entry a job, however often it changed.

    The store reads the records before its first await; the core may change them afterwards.
    Order of writing: updates of known jobs (they may free unique keys), new ones, the rest.
    """

    jobs: dict[int, Job] = field(default_factory=dict)
    schedules: dict[int, Schedule] = field(default_factory=dict)
    schedules_deleted: list[int] = field(default_factory=list)
    queues: dict[str, Queue] = field(default_factory=dict)
    attempts: list[AttemptRecord] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    decisions: list[DecisionRecord] = field(default_factory=list)
    idempotency_records: list[IdempotencyRecord] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.jobs
            or self.schedules
            or self.schedules_deleted
            or self.queues
            or self.attempts
            or self.outputs
            or self.decisions
            or self.idempotency_records
        )
