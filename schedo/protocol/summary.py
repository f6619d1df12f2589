"""The response of GET /v1/summary."""

from __future__ import annotations

from typing import Literal, Self

from msgspec import Struct

from schedo.core.ids import render_id
from schedo.core.lateness import Budget
from schedo.core.stats import WaitingJob
from schedo.protocol.fields import Id, Instant
from schedo.protocol.operation import Operation
from schedo.protocol.queues import QueueResponse
from schedo.protocol.system import CallerResponse, ObjectiveResponse
from schedo.protocol.times import render_instant
from schedo.protocol.workers import WorkerResponse


class VerdictResponse(Struct, forbid_unknown_fields=True):
    """Whether jobs start on time, or what is wrong; the gravest sentence is the text."""

    level: Literal["ok", "warning", "critical"]
    text: str
    others: list[str]


class BudgetResponse(Struct, forbid_unknown_fields=True):
    """How many starts kept the objective, and the part of the error budget that is left."""

    starts: int
    within: int
    share: float
    budget_left: float

    @classmethod
    def of(cls, budget: Budget) -> Self:
        share, left = round(budget.share_within, 6), round(budget.left, 4)
        return cls(budget.starts, budget.within, share, left)


class LatenessResponse(Struct, forbid_unknown_fields=True):
    """The lateness of one kind of starts in the last five minutes, and both budgets."""

    p50_us: int | None
    p99_us: int | None
    recent: BudgetResponse
    day: BudgetResponse


class WaitingJobResponse(Struct, forbid_unknown_fields=True):
    """A job that has been due for more than 5 s, and the first reason why it waits."""

    job: Id
    task: str
    queue: str
    due_at: Instant
    why: str

    @classmethod
    def of(cls, waiting: WaitingJob) -> Self:
        due_at = render_instant(waiting.due_at)
        key = waiting.ready_key
        return cls(render_id(waiting.job_id), key.task, key.queue, due_at, waiting.reason)


class SummaryResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """A server at one moment.

    `recent`, `quarter` and `day` are counts of the last 5 minutes, 15 minutes and 24 hours; the
    server has run for `recent_seconds` of the first. `states` is null while a large store counts.
    `long_waits` are at most 8 jobs that are first in their queue and have been due for 5 s.
    """

    verdict: VerdictResponse
    now: Instant
    started_at: Instant
    version: str
    epoch: int
    caller: CallerResponse
    features: dict[str, bool]
    objective: ObjectiveResponse
    lateness: dict[str, LatenessResponse]
    recent: dict[str, int]
    recent_seconds: int
    quarter: dict[str, int]
    day: dict[str, int]
    states: dict[str, int] | None
    running: int
    slots: int
    store_bytes: int
    memory_bytes: int
    queues: list[QueueResponse]
    has_more_queues: bool
    workers: list[WorkerResponse]
    has_more_workers: bool
    long_waits: list[WaitingJobResponse]


OPERATIONS = (
    Operation(
        "get_summary",
        "GET /v1/summary",
        "The server at a glance: a verdict in one sentence, figures, queues and workers.",
        {200: SummaryResponse},
    ),
)
