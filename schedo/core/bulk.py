"""The record of an operation on many jobs."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from schedo.core.job_filter import JobFilter
from schedo.core.states import FINAL, TIMED, WAITING, State


class BulkAction(StrEnum):
    """What an operation does to each of its jobs: the same as the command on one job."""

    CANCEL = "cancel"
    RETRY = "retry"
    RUN = "run"
    DELETE = "delete"

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the jobs that the action can change."""
        allowed = _STATES[self]
        return tuple(state for state in State if state in allowed)


_STATES = {
    BulkAction.CANCEL: WAITING | {State.RUNNING},
    BulkAction.RETRY: FINAL - {State.COMPLETED},
    BulkAction.RUN: TIMED,
    BulkAction.DELETE: FINAL,
}


class BulkState(StrEnum):
    """The state of an operation."""

    COUNTING = "counting"  # how many jobs match
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # more jobs matched than it may change; it has changed none
    FAILED = "failed"  # it could not go on; the jobs that it has changed stay changed


class BulkError(msgspec.Struct, frozen=True):
    """Why an operation could not change one of its jobs."""

    job_id: int
    message: str


class BulkOperation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operation on the jobs that match a filter, and how far it has come.

    It looks for jobs from the newest to the oldest, and only at those with smaller ids than its
    own: they were created before it.
    """

    id: int
    action: BulkAction
    which: JobFilter
    schedule: str | None = None  # the name of the filter's schedule
    undoes: int | None = None  # it puts the jobs of this operation back, and looks for no others
    created_at: int
    jobs_max: int | None = None  # it is refused if more jobs match
    jobs_expected: int | None = None  # it is refused if another number of jobs matches
    requested_by: str | None = None  # the name of the token
    state: BulkState = BulkState.COUNTING
    total: int | None = None  # how many jobs matched when it began
    before: int  # the search continues below this id
    done: int = 0
    skipped: int = 0  # they were gone, or no longer matched
    failed: int = 0
    errors: tuple[BulkError, ...] = ()  # the first ones
    failures: int = 0  # steps that failed as a whole since the last one that did not
    error: str | None = None  # of the last of them
    ended_at: int | None = None

    @property
    def is_active(self) -> bool:
        return self.state in (BulkState.COUNTING, BulkState.RUNNING)

    def may_change(self, total: int) -> bool:
        """Return whether the operation accepts this number of jobs."""
        if self.jobs_max is not None and total > self.jobs_max:
            return False
        return self.jobs_expected in (None, total)

    @property
    def matched(self) -> int:
        """How many jobs it has found so far."""
        return self.done + self.skipped + self.failed
