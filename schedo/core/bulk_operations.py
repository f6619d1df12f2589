"""Operations on many jobs: their records, and the changes of their jobs.

The engine searches the store for the jobs, and gives their ids in steps. Each step changes its jobs
and the operation's record in one commit, so a crash neither repeats nor skips a job. The records
are loaded after the search, and a job that no longer matches is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from schedo.core.bulk import BulkAction, BulkError, BulkOperation, BulkState
from schedo.core.bulk_commands import (
    BeginBulk,
    CancelBulk,
    Changed,
    ChangeForOther,
    CountedBulk,
    DeleteJob,
    FailedBulk,
    PutBackForOther,
    StepBulk,
    StepUndo,
    UndoBulk,
)
from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.commands import Cancel, RetryJob, RunNow
from schedo.core.ids import IdSource, render_id
from schedo.core.job_commands import JobCommands
from schedo.core.job_table import JobTable
from schedo.core.limits import BULK_ACTIVE_MAX, BULK_ENDED_KEPT, BULK_ERRORS_KEPT, BULK_FAILURES_MAX
from schedo.core.loads import Appliers, Loaded, LoadJobs, Needs
from schedo.core.model import Job
from schedo.errors import Conflict, IllegalTransition, NotFound, Overloaded, Unavailable

_COMMANDS: dict[BulkAction, Any] = {
    BulkAction.CANCEL: Cancel,
    BulkAction.RETRY: RetryJob,
    BulkAction.RUN: RunNow,
    BulkAction.DELETE: DeleteJob,
}


def _add(operation: BulkOperation, *parts: Changed) -> BulkOperation:
    """Return the record with what has become of the jobs of a step; the missing ones are gone."""
    errors = [error for part in parts for error in part.errors]
    return replace(
        operation,
        done=operation.done + sum(part.done for part in parts),
        skipped=operation.skipped + sum(part.skipped + len(part.missing) for part in parts),
        failed=operation.failed + len(errors),
        errors=(*operation.errors, *errors)[:BULK_ERRORS_KEPT],
        failures=0,
        error=None,
    )


def _check_current(command: StepBulk | StepUndo | ChangeForOther) -> None:
    """Raise Unavailable if the jobs of the step may have moved: none that moves is left out."""
    if not command.is_current():
        raise Unavailable("the shards have changed since the jobs of the step were found")


class BulkOperations:
    """The operations of one store: those that run, and the latest ones that have ended."""

    def __init__(self, jobs: JobTable, ids: IdSource, of_jobs: JobCommands) -> None:
        self._jobs = jobs
        self._ids = ids
        self._of_jobs = of_jobs
        self._by_id: dict[int, BulkOperation] = {}
        self.appliers: Appliers = {
            BeginBulk: self._begin,
            CountedBulk: self._counted,
            StepBulk: self._step,
            FailedBulk: self._failed,
            CancelBulk: self._cancel,
            UndoBulk: self._undo,
            StepUndo: self._step_back,
            ChangeForOther: self._change_for_other,
            PutBackForOther: self._put_back_for_other,
        }

    def restore(self, operations: Iterable[BulkOperation]) -> None:
        """Restore the operations of the store."""
        self._by_id = {each.id: each for each in sorted(operations, key=lambda each: each.id)}

    def all(self) -> list[BulkOperation]:
        """Return the operations, oldest first."""
        return [*self._by_id.values()]

    def _check_room(self) -> None:
        active = sum(1 for each in self._by_id.values() if each.is_active)
        if active >= BULK_ACTIVE_MAX:
            raise Overloaded(f"{active} operations run; wait for the end of one, or cancel one", 10)

    def _begin(self, command: BeginBulk, now: int, loaded: Loaded) -> BulkOperation:
        self._check_room()
        number = self._ids.next(now)
        which = replace(command.which, states=command.action.states)
        if command.action in (BulkAction.RETRY, BulkAction.DELETE):
            # A job that ends after the operation began is not its business.
            before = which.ended_before
            which = replace(which, ended_before=now + 1 if before is None else min(before, now + 1))
        return self._put(
            BulkOperation(
                id=number,
                action=command.action,
                which=which,
                schedule=command.schedule,
                created_at=now,
                jobs_max=command.jobs_max,
                jobs_expected=command.jobs_expected,
                requested_by=command.requested_by,
                before=number,
            )
        )

    def _counted(self, command: CountedBulk, now: int, loaded: Loaded) -> BulkOperation:
        operation = self._find(command.id)
        if operation.state is not BulkState.COUNTING:
            return operation
        operation = replace(
            operation, total=command.total, state=BulkState.RUNNING, failures=0, error=None
        )
        if not operation.may_change(command.total):
            return self._end(operation, BulkState.REFUSED, now)
        return self._put(operation)

    def _cancel(self, command: CancelBulk, now: int, loaded: Loaded) -> BulkOperation:
        operation = self._find(command.id)
        return self._end(operation, BulkState.CANCELLED, now) if operation.is_active else operation

    def _step(self, command: StepBulk, now: int, loaded: Loaded) -> BulkOperation | Needs:
        operation = self._find(command.id)
        if operation.state is not BulkState.RUNNING or operation.before != command.after:
            return operation
        _check_current(command)
        changed = self._change_jobs(operation, command.job_ids, loaded, now)
        if isinstance(changed, Needs):
            return changed
        before = (*changed.before, *command.elsewhere.before)
        if before:
            self._jobs.changes.steps.append(BulkStep(operation.id, command.after, before))
        kept = command.elsewhere.kept
        self._jobs.changes.steps_deleted += [(operation.id, number) for number in kept]
        operation = _add(operation, changed, command.elsewhere)
        if command.before is None:
            return self._end(operation, BulkState.DONE, now)
        return self._put(replace(operation, before=command.before))

    def _undo(self, command: UndoBulk, now: int, loaded: Loaded) -> BulkOperation:
        undone = self._find(command.id)
        self._check_can_undo(undone)
        self._check_room()
        return self._put(
            BulkOperation(
                id=self._ids.next(now),
                action=undone.action,
                which=undone.which,
                schedule=undone.schedule,
                undoes=undone.id,
                created_at=now,
                requested_by=command.requested_by,
                state=BulkState.RUNNING,
                total=undone.done,
                before=undone.id + 1,
            )
        )

    def _check_can_undo(self, operation: BulkOperation) -> None:
        """Raise Conflict if the operation cannot be undone."""
        name = f"operation {render_id(operation.id)}"
        if operation.is_active:
            raise Conflict(f"{name} still runs; cancel it, and undo what it has done")
        if operation.undoes is not None:
            raise Conflict(f"{name} is an undo itself; begin the first operation again")
        if operation.action is BulkAction.DELETE:
            raise Conflict(f"{name} has deleted its jobs; nothing brings them back")
        for each in self._by_id.values():
            if each.undoes == operation.id and each.state is not BulkState.FAILED:
                raise Conflict(f"{name} is undone already, by operation {render_id(each.id)}")

    def _step_back(self, command: StepUndo, now: int, loaded: Loaded) -> BulkOperation | Needs:
        operation = self._find(command.id)
        if operation.state is not BulkState.RUNNING or operation.before != command.after:
            return operation
        _check_current(command)
        changed = self._put_jobs_back(command.jobs, loaded, now)
        if isinstance(changed, Needs):
            return changed
        operation = _add(operation, changed, command.elsewhere)
        if command.before is None:
            return self._end(operation, BulkState.DONE, now)
        return self._put(replace(operation, before=command.before))

    def _failed(self, command: FailedBulk, now: int, loaded: Loaded) -> BulkOperation:
        operation = self._find(command.id)
        if not operation.is_active:
            return operation
        operation = replace(operation, failures=operation.failures + 1, error=command.error)
        if operation.failures < BULK_FAILURES_MAX:
            return self._put(operation)
        return self._end(operation, BulkState.FAILED, now)

    def _change_for_other(
        self, command: ChangeForOther, now: int, loaded: Loaded
    ) -> Changed | Needs:
        _check_current(command)
        changed = self._change_jobs(command.operation, command.job_ids, loaded, now)
        if command.number and isinstance(changed, Changed) and changed.before:
            step = BulkStep(command.operation.id, command.number, changed.before)
            self._jobs.changes.steps.append(step)
        return changed

    def _put_back_for_other(
        self, command: PutBackForOther, now: int, loaded: Loaded
    ) -> Changed | Needs:
        return self._put_jobs_back(command.jobs, loaded, now)

    def _is_missing(self, job_id: int) -> bool:
        return self._jobs.find(job_id) is None

    def _find_all(self, ids: tuple[int, ...], loaded: Loaded) -> Needs | Mapping[int, Job | None]:
        """Return the jobs by id, None for those that are not here, or what must be loaded."""
        load = LoadJobs(ids)
        if load not in loaded and any(map(self._is_missing, ids)):
            return Needs((load,))
        found: Mapping[int, Job] = loaded.get(load, {})
        return {each: self._jobs.find_loaded(each, found.get(each)) for each in ids}

    def _change_jobs(
        self, operation: BulkOperation, job_ids: tuple[int, ...], loaded: Loaded, now: int
    ) -> Changed | Needs:
        """Carry out the action on those of the jobs that match."""
        jobs = self._find_all(job_ids, loaded)
        if isinstance(jobs, Needs):
            return jobs
        if operation.action is BulkAction.DELETE and any(map(self._jobs.is_uncommitted, job_ids)):
            return Needs((LoadJobs(job_ids),))
        done = skipped = 0
        errors: list[BulkError] = []
        changed: list[JobBefore] = []
        change = _COMMANDS[operation.action]
        for job_id, job in jobs.items():
            if job is None:
                continue
            if not operation.which.matches(job):
                skipped += 1
                continue
            before = JobBefore.of(job, now) if operation.action is not BulkAction.DELETE else None
            try:
                self._of_jobs.change(job, change(job_id), now)
                done += 1
            except IllegalTransition as error:
                errors.append(BulkError(job_id, str(error)))
                continue
            if before is not None:
                changed.append(before)
        missing = tuple(each for each, job in jobs.items() if job is None)
        return Changed(done, skipped, tuple(errors), tuple(changed), missing)

    def _put_jobs_back(
        self, records: tuple[JobBefore, ...], loaded: Loaded, now: int
    ) -> Changed | Needs:
        """Put those of the jobs back to which nothing has happened since."""
        jobs = self._find_all(tuple(each.id for each in records), loaded)
        if isinstance(jobs, Needs):
            return jobs
        done, missing = 0, tuple(each for each, job in jobs.items() if job is None)
        for before in records:
            job = jobs[before.id]
            done += job is not None and self._of_jobs.put_back(job, before, now)
        return Changed(done, len(records) - len(missing) - done, missing=missing)

    def _find(self, number: int) -> BulkOperation:
        operation = self._by_id.get(number)
        if operation is None:
            raise NotFound(
                f"there is no operation {render_id(number)}; of those that have ended, the latest"
                f" {BULK_ENDED_KEPT} are kept"
            )
        return operation

    def _end(self, operation: BulkOperation, state: BulkState, now: int) -> BulkOperation:
        ended = self._put(replace(operation, state=state, ended_at=now))
        old = [each.id for each in self._by_id.values() if not each.is_active][:-BULK_ENDED_KEPT]
        for number in old:
            del self._by_id[number]
            self._jobs.changes.bulk_operations[number] = None
        return ended

    def _put(self, operation: BulkOperation) -> BulkOperation:
        self._by_id[operation.id] = self._jobs.changes.bulk_operations[operation.id] = operation
        return operation
