"""The commands on operations on many jobs, and to delete a job, as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from schedo.core.bulk import BulkAction, BulkError, BulkOperation
from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.commands import Command
from schedo.core.job_filter import JobFilter


class DeleteJob(Command[None], frozen=True):
    """Delete an ended job with all its records. Raises NotFound, or IllegalTransition."""

    job_id: int


class BeginBulk(Command[BulkOperation], frozen=True):
    """Begin to change all jobs that match. Raises Overloaded if too many operations run."""

    action: BulkAction
    which: JobFilter
    schedule: str | None = None  # the name of the filter's schedule
    jobs_max: int | None = None  # refuse the operation if more jobs match
    jobs_expected: int | None = None  # refuse it if another number of jobs matches
    requested_by: str | None = None


class BulkCommand(Command[BulkOperation], frozen=True):
    """The base of the commands on one operation; the reply is its record. Raises NotFound."""

    id: int


class CountedBulk(BulkCommand, frozen=True):
    """Note how many jobs match; the operation runs now, or is refused."""

    total: int


class Changed(NamedTuple):
    """What became of some jobs: how many were changed, were left out, or could not be."""

    done: int = 0
    skipped: int = 0
    errors: tuple[BulkError, ...] = ()  # of those that could not be
    before: tuple[JobBefore, ...] = ()  # what an undo needs
    missing: tuple[int, ...] = ()  # jobs that are not in the shards of this server
    kept: tuple[int, ...] = ()  # the numbers under which other servers have stored `before`

    @classmethod
    def of_record(cls, step: BulkStep) -> Changed:
        """Return what a part has done, by the record that it has left in the store."""
        return cls(done=len(step.jobs), before=step.jobs, kept=(step.number,))

    @classmethod
    def total(cls, parts: Sequence[Changed]) -> Changed:
        """Return what became of the jobs of all parts, none of which is missing."""
        return cls(
            sum(each.done for each in parts),
            sum(each.skipped for each in parts),
            tuple(error for each in parts for error in each.errors),
            tuple(before for each in parts for before in each.before),
            kept=tuple(number for each in parts for number in each.kept),
        )


def _always() -> bool:
    return True


class ChangeForOther(Command[Changed], frozen=True):
    """Change some jobs for an operation that another server carries out and keeps the record of.

    number: of a step for what an undo needs, in the commit of the change, in case the response is
    lost; below zero, because such a step has no place among those of the operation. 0: of none.
    is_current: as for StepBulk; the jobs that earlier parts have changed are known by then.
    """

    operation: BulkOperation
    job_ids: tuple[int, ...]
    number: int = 0
    is_current: Callable[[], bool] = _always


class PutBackForOther(Command[Changed], frozen=True):
    """Put some jobs back for an undo that another server carries out."""

    jobs: tuple[JobBefore, ...]


class StepBulk(BulkCommand, frozen=True):
    """Change some jobs of a running operation.

    after: the id below which they were searched; if it is not that of the record, the step is
    outdated and changes nothing. before: the id below which the search continues; None: it has
    ended. is_current: whether the jobs were found to be this server's for this scheduler. Since an
    earlier one, some may have moved to another server: then this raises Unavailable.
    """

    after: int
    job_ids: tuple[int, ...]
    before: int | None
    elsewhere: Changed = Changed()  # what other servers have changed for this step
    is_current: Callable[[], bool] = _always


class FailedBulk(BulkCommand, frozen=True):
    """Note that a step failed as a whole; after BULK_FAILURES_MAX in a row the operation fails."""

    error: str


class CancelBulk(BulkCommand, frozen=True):
    """Stop an operation; the jobs that it has changed stay changed. It may be repeated."""


class UndoBulk(BulkCommand, frozen=True):
    """Begin an operation that puts back what this one has changed. Raises Conflict."""

    requested_by: str | None = None


class StepUndo(BulkCommand, frozen=True):
    """Put back the jobs of a step of the other operation.

    after and before are numbers of its steps. They and is_current mean what they mean for StepBulk.
    """

    after: int
    jobs: tuple[JobBefore, ...]
    before: int | None
    elsewhere: Changed = Changed()  # what other servers have put back for this step
    is_current: Callable[[], bool] = _always
