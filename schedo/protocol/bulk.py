"""Operations on many jobs: the request that begins one, and the responses that show it."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import UNSET, Meta, Struct, UnsetType, field

from schedo.core import limits
from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.ids import newest_at, render_id
from schedo.core.job_filter import JobFilter, PayloadCondition
from schedo.core.states import State
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration, Id, Instant, Name, Text, instant_or_unset, or_unset
from schedo.protocol.job_filters import (
    TEXT_CHARACTERS_MAX,
    make_conditions,
    render_value,
    show_conditions,
)
from schedo.protocol.times import render_duration, render_instant

TextPart = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX)]


class Where(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The jobs of an operation: all conditions of a list of jobs, at least one of them."""

    state: State | None = None
    queue: Name | None = None
    task: Name | None = None
    schedule: Name | None = None
    tag: Name | None = None
    unique_key: Text | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    ended_after: Instant | None = None
    ended_before: Instant | None = None
    error: TextPart | None = None
    worker: Name | None = None
    q: TextPart | None = None
    payload: dict[str, str | int | float | bool | None] | None = None  # values by their paths
    late_over: Duration | None = None

    def check(self, action: BulkAction) -> None:
        """Raise Invalid if there is no condition, or if the action changes no such jobs."""
        if self == Where():
            raise Invalid.field(
                "/where",
                "give at least one condition; created_before with the current time means all jobs",
            )
        for name in ("queue", "task", "schedule", "tag", "worker"):
            value = getattr(self, name)
            if value is not None:
                fields.read_name(f"/where/{name}", value)
        if self.state is not None and self.state not in action.states:
            raise Invalid.field(
                "/where/state",
                f"{action} changes no {self.state} jobs, only those that are"
                f" {', '.join(action.states)}",
            )

    def read(self, schedule_id: int | None, now: int) -> JobFilter:
        """Return the filter; raise Invalid. schedule_id: of the schedule, if there is one."""

        def instant(name: str) -> int | None:
            return fields.read_instant_or_none(f"/where/{name}", getattr(self, name))

        return JobFilter(
            state=None if self.state is None else self.state.value,
            queue=self.queue,
            task=self.task,
            schedule_id=schedule_id,
            tag=self.tag,
            unique_key=self.unique_key,
            created_after=instant("created_after"),
            created_before=instant("created_before"),
            ended_after=instant("ended_after"),
            ended_before=instant("ended_before"),
            error=self.error,
            worker=self.worker,
            text=self.q,
            payload=self._read_payload(),
            late_over_us=(
                None
                if self.late_over is None
                else fields.read_duration("/where/late_over", self.late_over)
            ),
            late_at=now if self.late_over is not None else 0,
        )

    def _read_payload(self) -> tuple[PayloadCondition, ...]:
        wanted = (self.payload or {}).items()
        try:
            return make_conditions((path, render_value(value)) for path, value in wanted)
        except ValueError as error:
            raise Invalid.field("/where/payload", f"{error.args[0]!r}: {error.args[1]}") from None

    @classmethod
    def of(cls, operation: BulkOperation) -> Self:
        which = operation.which

        def instant(us: int | None) -> str | None:
            return None if us is None else render_instant(us)

        return cls(
            None if which.state is None else State(which.state),
            which.queue,
            which.task,
            operation.schedule,
            which.tag,
            which.unique_key,
            instant(which.created_after),
            instant(which.created_before),
            instant(which.ended_after),
            instant(which.ended_before),
            which.error,
            which.worker,
            which.text,
            dict(show_conditions(which.payload)) or None,
            None if which.late_over_us is None else render_duration(which.late_over_us),
        )


class BulkRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An operation on all jobs that match; with dry_run they are only counted."""

    action: Annotated[BulkAction, Meta(description="What to do to each job.")]
    where: Where = field(default_factory=Where)
    dry_run: bool = False
    max_jobs: Annotated[int, Meta(ge=1, le=limits.COUNT_MAX)] | None = None
    expected_count: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=limits.COUNT_MAX,
                description="Change none if another number of jobs matches, as a dry run counted.",
            ),
        ]
        | None
    ) = None


class DryRunResponse(Struct, forbid_unknown_fields=True):
    """How many jobs an operation would change now.

    A count that takes too long leaves out the older jobs.
    """

    action: BulkAction
    where: Where
    matched: int
    counted_since: Instant | UnsetType = UNSET


class BulkErrorResponse(Struct, forbid_unknown_fields=True):
    """Why a job could not be changed."""

    job: Id
    message: str


class BulkResponse(Struct, forbid_unknown_fields=True):
    """An operation on many jobs, and how far it has come.

    It goes from the newest job to the oldest; searched_back_to says how old the jobs are that it
    has come to. If it undoes another one, it puts the jobs back that the other one has changed.
    """

    id: Id
    action: BulkAction
    where: Where
    state: BulkState
    created_at: Instant
    matched: int
    done: int
    skipped: int
    failed: int
    errors: list[BulkErrorResponse]
    searched_back_to: Instant
    total: int | UnsetType = UNSET
    error: Annotated[
        str | UnsetType,
        Meta(description="Why its last step failed as a whole; five failures in a row end it."),
    ] = UNSET
    ended_at: Instant | UnsetType = UNSET
    max_jobs: int | UnsetType = UNSET
    expected_count: int | UnsetType = UNSET
    requested_by: str | UnsetType = UNSET
    undoes: Id | UnsetType = UNSET

    @classmethod
    def of(cls, operation: BulkOperation) -> Self:
        return cls(
            id=render_id(operation.id),
            action=operation.action,
            where=Where.of(operation),
            state=operation.state,
            created_at=render_instant(operation.created_at),
            total=or_unset(operation.total),
            error=or_unset(operation.error),
            matched=operation.matched,
            done=operation.done,
            skipped=operation.skipped,
            failed=operation.failed,
            errors=[
                BulkErrorResponse(render_id(each.job_id), each.message) for each in operation.errors
            ],
            # Below zero an undo has come to what other servers have kept, of jobs of any age.
            searched_back_to=render_instant(newest_at(max(0, operation.before))),
            ended_at=instant_or_unset(operation.ended_at),
            max_jobs=or_unset(operation.jobs_max),
            expected_count=or_unset(operation.jobs_expected),
            requested_by=or_unset(operation.requested_by),
            undoes=UNSET if operation.undoes is None else render_id(operation.undoes),
        )


class BulkPage(Struct, forbid_unknown_fields=True):
    """The operations that run, and the latest ones that have ended, newest first."""

    items: list[BulkResponse]
