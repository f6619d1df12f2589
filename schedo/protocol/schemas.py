"""Schemas of the responses, for openapi.json; a test compares real responses with them.

The answers themselves are made in answers.py, without these classes, because that is faster.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.protocol.fields import Instant
from schedo.protocol.requirements import Preferences, RequiresRequest

Id = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9A-HJKMNP-TV-Z]{13}$"})]
DurationText = Annotated[str, Meta(examples=["90s"])]
StateName = Literal[
    "scheduled",
    "blocked",
    "queued",
    "running",
    "retrying",
    "completed",
    "failed",
    "cancelled",
    "expired",
]
TriggerName = Literal["submit", "schedule", "catchup", "manual", "invoke"]


class FailureAnswer(Struct, forbid_unknown_fields=True):
    """The error of an attempt."""

    type: str
    message: str
    exit_code: int | UnsetType = UNSET
    signal: str | UnsetType = UNSET
    http_status: int | UnsetType = UNSET
    traceback: str | UnsetType = UNSET


class JobAnswer(Struct, forbid_unknown_fields=True, kw_only=True):
    """The current state of a job; fields without a value are left out."""

    id: Id
    state: StateName
    task: str
    queue: str
    priority: int
    payload: Any = UNSET
    attempt: int
    max_attempts: int | UnsetType = UNSET
    failures: int
    losses: int
    created_at: Instant
    scheduled_at: Instant
    picked_at: Instant | UnsetType = UNSET
    started_at: Instant | UnsetType = UNSET
    completed_at: Instant | UnsetType = UNSET
    failed_at: Instant | UnsetType = UNSET
    cancelled_at: Instant | UnsetType = UNSET
    expired_at: Instant | UnsetType = UNSET
    expires_at: Instant | UnsetType = UNSET
    schedule: str | UnsetType = UNSET
    scheduled_for: Instant | UnsetType = UNSET
    trigger: TriggerName | UnsetType = UNSET
    missed_count: int | UnsetType = UNSET
    unique_key: str | UnsetType = UNSET
    delivery: Literal["at_most_once"] | UnsetType = UNSET
    timeout: DurationText | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET
    requires: RequiresRequest | UnsetType = UNSET
    prefer: Preferences | UnsetType = UNSET
    cancel_requested_at: Instant | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    result: Any = UNSET
    error: FailureAnswer | UnsetType = UNSET
    conflict: bool | UnsetType = UNSET


class PointedProblem(Struct, forbid_unknown_fields=True):
    """The error of one field (JSON pointer) or one query parameter."""

    detail: str
    pointer: str | UnsetType = UNSET
    parameter: str | UnsetType = UNSET


class ProblemAnswer(Struct, forbid_unknown_fields=True):
    """An error as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[PointedProblem] | UnsetType = UNSET
    considered: int | UnsetType = UNSET
    rejected: dict[str, int] | UnsetType = UNSET
    job: JobAnswer | UnsetType = UNSET
    jobs: list[JobAnswer] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class BatchItem(Struct, forbid_unknown_fields=True):
    """The result for one job of a batch."""

    status: int
    job: JobAnswer | UnsetType = UNSET
    problem: ProblemAnswer | UnsetType = UNSET


class BatchAnswer(Struct, forbid_unknown_fields=True):
    """The results for a batch, in order."""

    items: list[BatchItem]


class JobPage(Struct, forbid_unknown_fields=True):
    """A page of jobs; without next_cursor it is the last."""

    items: list[JobAnswer]
    next_cursor: str | UnsetType = UNSET


class AttemptAnswer(Struct, forbid_unknown_fields=True):
    """An ended attempt that did not complete its job."""

    attempt: int
    outcome: str
    ended_at: Instant
    worker: str | UnsetType = UNSET
    started_at: Instant | UnsetType = UNSET
    error: FailureAnswer | UnsetType = UNSET


class AttemptPage(Struct, forbid_unknown_fields=True):
    """All such attempts of a job."""

    items: list[AttemptAnswer]


class OutputAnswer(Struct, forbid_unknown_fields=True):
    """The captured output of one stream of one attempt."""

    attempt: int
    stream: Literal["stdout", "stderr", "body"]
    text: str
    total_bytes: int
    truncated: bool
    encoding: Literal["base64"] | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class OutputPage(Struct, forbid_unknown_fields=True):
    """All captured streams of a job."""

    items: list[OutputAnswer]


class WhyAnswer(Struct, forbid_unknown_fields=True):
    """The reason why a job waits."""

    id: Id
    state: StateName
    why: str


class DstAnswer(Struct, forbid_unknown_fields=True):
    """The handling of fixed times when the clock changes."""

    gap: Literal["after", "skip"]
    fold: Literal["first", "last", "both"]


class CountersAnswer(Struct, forbid_unknown_fields=True):
    """The numbers of decisions on a schedule's instants."""

    fired: int
    missed: int
    overlap_skipped: int
    buffered: int


class ScheduleAnswer(Struct, forbid_unknown_fields=True, kw_only=True):
    """The current state of a schedule; fields without a value are left out."""

    name: str
    cron: str | UnsetType = UNSET
    normalized: str | UnsetType = UNSET
    every: DurationText | UnsetType = UNSET
    at: Instant | UnsetType = UNSET
    tz: str
    dst: DstAnswer | UnsetType = UNSET
    jitter: DurationText | UnsetType = UNSET
    start_at: Instant | UnsetType = UNSET
    end_at: Instant | UnsetType = UNSET
    description: str | UnsetType = UNSET
    task: str
    payload: Any
    queue: str
    priority: int
    retry: dict[str, Any] | UnsetType = UNSET
    expires_in: DurationText | UnsetType = UNSET
    unique: dict[str, Any] | UnsetType = UNSET
    delivery: Literal["at_most_once"] | UnsetType = UNSET
    timeout: DurationText | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    requires: RequiresRequest | UnsetType = UNSET
    prefer: Preferences | UnsetType = UNSET
    overlap: Literal["skip", "allow", "buffer_one", "cancel_other"]
    catchup: Literal["latest", "all", "skip"]
    catchup_window: DurationText
    catchup_max: int
    paused: bool
    note: str | UnsetType = UNSET
    created_at: Instant
    updated_at: Instant
    next_fires: list[Instant]
    last_fired_at: Instant | UnsetType = UNSET
    last_job: Id | UnsetType = UNSET
    counters: CountersAnswer
    warnings: list[str]


class SchedulePage(Struct, forbid_unknown_fields=True):
    """A page of schedules; without next_cursor it is the last."""

    items: list[ScheduleAnswer]
    next_cursor: str | UnsetType = UNSET


class DecisionAnswer(Struct, forbid_unknown_fields=True):
    """The decision on one instant, or on `count` instants that end with it."""

    scheduled_for: Instant
    decided_at: Instant
    decision: str
    count: int
    job: Id | UnsetType = UNSET


class DecisionPage(Struct, forbid_unknown_fields=True):
    """The latest decisions of a schedule."""

    items: list[DecisionAnswer]


class TriggerAnswer(Struct, forbid_unknown_fields=True):
    """The new job, or the unfinished job that prevented it."""

    job: JobAnswer | UnsetType = UNSET
    skipped_overlap: bool | UnsetType = UNSET
    blocking_job: Id | UnsetType = UNSET


class CronAnswer(Struct, forbid_unknown_fields=True):
    """What a cron expression means."""

    tz: str
    description: str
    next_fires: list[Instant]
    warnings: list[str]
    normalized: str | UnsetType = UNSET
    every: DurationText | UnsetType = UNSET


class QueueAnswer(Struct, forbid_unknown_fields=True):
    """The current state of a queue; concurrency null means no limit but the slots."""

    name: str
    concurrency: int | None
    paused: bool
    weight: int
    priority_step: DurationText
    running: int
    waiting: dict[str, int]
    counted_at: Instant


class QueuePage(Struct, forbid_unknown_fields=True):
    """All queues that are configured or in use."""

    items: list[QueueAnswer]


class ShortAnswer(Struct, forbid_unknown_fields=True, kw_only=True):
    """A command's state in the short form."""

    task_id: Id
    status: StateName
    command: str | UnsetType = UNSET
    scheduled_at: Instant
    picked_at: Instant | UnsetType = UNSET
    started_at: Instant | UnsetType = UNSET
    completed_at: Instant | UnsetType = UNSET
    failed_at: Instant | UnsetType = UNSET
    cancelled_at: Instant | UnsetType = UNSET
    expired_at: Instant | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class HealthAnswer(Struct, forbid_unknown_fields=True):
    """The process is alive."""

    status: Literal["ok"]


class ReadyAnswer(Struct, forbid_unknown_fields=True):
    """Whether the server is ready, the reasons if not, and further notes."""

    ready: bool
    reasons: list[str]
    notes: list[str] | UnsetType = UNSET


class InfoAnswer(Struct, forbid_unknown_fields=True):
    """Versions and limits."""

    version: str
    python: str
    sqlite: str
    tzdata: str
    shell: bool
    limits: dict[str, int]


class ProblemKindAnswer(Struct, forbid_unknown_fields=True):
    """What an error code means."""

    code: str
    status: int
    title: str
    description: str
