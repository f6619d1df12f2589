"""The changes that one commit must make durable, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from schedo.core.action_log import LogEntry
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_undo import BulkStep
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.ends import End
from schedo.core.expectations import Expectation
from schedo.core.leases import CapturedOutput
from schedo.core.model import (
    DecisionRecord,
    Failure,
    Job,
    Pause,
    PauseScope,
    Queue,
    Schedule,
)
from schedo.core.outcomes import FailedAttempt
from schedo.core.run_history import EndedRun


class AttemptRecord(NamedTuple):
    """The stored record of an ended attempt that did not complete its job."""

    job_id: int
    attempt: int
    epoch: int
    worker: str | None
    started_at: int | None
    ended_at: int
    outcome: str  # failed, timeout, snoozed, released, lost, stale
    failure: Failure | None
    due_at: int | None = None  # when the attempt was due; a retry moves the job's own due_at
    picked_at: int | None = None  # when a worker got it, if that knows better when it started


class Output(NamedTuple):
    """The stored output stream of an attempt."""

    job_id: int
    attempt: int
    capture: CapturedOutput


class IdempotencyRecord(NamedTuple):
    """The response to a request with an Idempotency-Key, committed together with its effect."""

    scope: str  # token id, method, route and key
    fingerprint: bytes  # SHA-256 of the canonical body
    status: int
    body: bytes
    created_at: int


@dataclass(slots=True)
class Changes:
    """The changes of one commit. A job that changes several times has one entry.

    The store reads the records before its first await, because the core may change them afterwards.
    It deletes jobs first and then writes updates of known jobs, since both may release unique keys,
    then new jobs, then the rest.
    """

    jobs: dict[int, Job] = field(default_factory=dict)
    schedules: dict[int, Schedule] = field(default_factory=dict)
    schedules_deleted: list[int] = field(default_factory=list)
    queues: dict[str, Queue] = field(default_factory=dict)
    pauses: dict[PauseScope, Pause | None] = field(default_factory=dict)  # None: it has ended
    cordons: dict[str, CordonedWorker | None] = field(default_factory=dict)  # None: it has ended
    bulk_operations: dict[int, BulkOperation | None] = field(default_factory=dict)  # None: delete
    steps: list[BulkStep] = field(default_factory=list)  # of operations
    steps_deleted: list[tuple[int, int]] = field(default_factory=list)  # operation and number
    jobs_deleted: list[int] = field(default_factory=list)
    dropped: list[Job] = field(default_factory=list)  # those of `jobs` that are not kept
    expectations: dict[int, Expectation | None] = field(default_factory=dict)  # None: deleted
    attempts: list[AttemptRecord] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    decisions: list[DecisionRecord] = field(default_factory=list)
    ended_runs: list[EndedRun] = field(default_factory=list)
    idempotency_records: list[IdempotencyRecord] = field(default_factory=list)
    log: list[LogEntry] = field(default_factory=list)
    taken_in: list[int] = field(default_factory=list)  # rows of the inbox to delete
    ends: list[End] = field(default_factory=list)  # not stored: they count once it is durable
    refused: list[FailedAttempt] = field(default_factory=list)  # not stored: logged from then on

    def __bool__(self) -> bool:
        return bool(self.jobs) or self.has_others

    @property
    def has_others(self) -> bool:
        """Whether there are changes of anything but job records; most commits have none."""
        return bool(
            self.schedules
            or self.schedules_deleted
            or self.queues
            or self.pauses
            or self.cordons
            or self.bulk_operations
            or self.steps
            or self.steps_deleted
            or self.jobs_deleted
            or self.expectations
            or self.attempts
            or self.outputs
            or self.decisions
            or self.ended_runs
            or self.idempotency_records
            or self.log
            or self.taken_in
        )
