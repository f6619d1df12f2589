"""The history of a schedule's runs, as responses show it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.core.ids import render_id
from schedo.core.model import Failure
from schedo.core.run_history import LastRun, RunHistory
from schedo.protocol.fields import DurationText, Id, Instant, duration_or_unset, instant_or_unset
from schedo.protocol.times import render_instant

EndState = Literal["completed", "failed", "cancelled", "expired"]


class LastFailureResponse(Struct, forbid_unknown_fields=True):
    """Why the last run that failed did; its message is cut, and the job may be deleted."""

    job: Id
    at: Instant
    type: str | UnsetType = UNSET
    message: str | UnsetType = UNSET

    @classmethod
    def of(cls, job_id: int, at: int, failure: Failure | None) -> Self:
        if failure is None:
            return cls(render_id(job_id), render_instant(at))
        return cls(render_id(job_id), render_instant(at), failure.type, failure.message)


class LastRunResponse(Struct, forbid_unknown_fields=True):
    """A run that has ended; its job may be deleted. duration: of its last attempt.

    scheduled_for: the instant that it was made for; unknown for runs before this version.
    """

    job: Id
    state: EndState
    ended_at: Instant
    duration: DurationText | UnsetType = UNSET
    scheduled_for: Instant | UnsetType = UNSET

    @classmethod
    def of(cls, run: LastRun) -> Self:
        return cls(
            render_id(run.job_id),
            run.state.value,  # type: ignore[arg-type]  # a run ends in one of these
            render_instant(run.ended_at),
            duration_or_unset(run.duration_us),
            instant_or_unset(run.scheduled_for),
        )


class RunHistoryResponse(Struct, forbid_unknown_fields=True):
    """How the runs of a schedule ended. A failed attempt that is retried is no end."""

    completed: int
    failed: int
    cancelled: int
    expired: int
    failed_in_row: Annotated[int, Meta(description="Failed runs since the last completed one.")]
    last: Annotated[list[LastRunResponse], Meta(description="The last twenty, newest first.")]
    last_completed_at: Instant | UnsetType = UNSET
    last_failure: LastFailureResponse | UnsetType = UNSET

    @classmethod
    def of(cls, history: RunHistory) -> Self:
        at, job_id = history.last_failed_at, history.last_failed_job
        return cls(
            history.completed,
            history.failed,
            history.cancelled,
            history.expired,
            history.failed_in_row,
            [LastRunResponse.of(run) for run in reversed(history.last_runs)],
            instant_or_unset(history.last_completed_at),
            UNSET
            if at is None or job_id is None
            else LastFailureResponse.of(job_id, at, history.last_failure),
        )
