"""The commands on one job, and the follow-ups that the core gives itself about one job.

All of them find their job in memory, else in what was loaded for them: memory wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schedo.core.bulk_commands import DeleteJob
from schedo.core.bulk_undo import JobBefore
from schedo.core.commands import (
    Cancel,
    CancelRun,
    FailRetry,
    JobCommand,
    JobFollowUp,
    Reschedule,
    RetryJob,
    RunNow,
    UnblockRun,
)
from schedo.core.ids import render_id
from schedo.core.job_table import JobTable
from schedo.core.keep import NOT_KEPT
from schedo.core.leases import StopReason
from schedo.core.loads import Appliers, Loaded, LoadJob, Needs
from schedo.core.model import Job, Trigger
from schedo.core.outcomes import NEXT_RUN_FIRST, add_reason
from schedo.core.running import RunningAttempts, reset_budget
from schedo.core.states import TIMED, WAITING, State
from schedo.core.transitions import JobTransitions
from schedo.errors import IllegalTransition, NotFound


class JobCommands:
    """Changes single jobs by command."""

    def __init__(
        self, jobs: JobTable, transitions: JobTransitions, attempts: RunningAttempts
    ) -> None:
        self._jobs = jobs
        self._transitions = transitions
        self._attempts = attempts
        self.appliers: Appliers = {
            **dict.fromkeys(_ACTIONS, self._apply),
            **dict.fromkeys(_FOLLOW_UPS, self._follow_up),
            DeleteJob: self._delete_one,
        }

    def _apply(self, command: JobCommand, now: int, loaded: Loaded) -> Job | Needs:
        """Change the job of the command; raise NotFound or IllegalTransition."""
        job = self._find(command.job_id, loaded)
        if job is None:
            raise no_job(command.job_id)
        return job if isinstance(job, Needs) else _ACTIONS[type(command)](self, job, command, now)

    def _follow_up(self, command: JobFollowUp, now: int, loaded: Loaded) -> Needs | None:
        """Change the job of the follow-up, if there is one and its state allows the change."""
        job = self._find(command.job_id, loaded)
        if isinstance(job, Needs):
            return job
        if job is not None:
            _FOLLOW_UPS[type(command)](self, job, command, now)
        return None

    def _find(self, job_id: int, loaded: Loaded) -> Job | Needs | None:
        load = LoadJob(job_id)
        known = self._jobs.find_loaded(job_id, loaded.get(load))
        return Needs((load,)) if known is None and load not in loaded else known

    def change(self, job: Job, command: JobCommand | DeleteJob, now: int) -> None:
        """Carry out a command on its job; the job of a DeleteJob has no uncommitted change."""
        if isinstance(command, DeleteJob):
            self._delete(job)
        else:
            _ACTIONS[type(command)](self, job, command, now)

    def put_back(self, job: Job, before: JobBefore, now: int) -> bool:
        """Give the job the state that it had before an operation changed it.

        Return whether that was done. A job that has started, ended or been changed since stays as
        it is.
        """
        if not before.is_unchanged(job) or job.kept_until == NOT_KEPT:
            return False
        self._transitions.put_back(self._jobs.track(job), before, now)
        return True

    def _delete_one(self, command: DeleteJob, now: int, loaded: Loaded) -> Needs | None:
        job = self._find(command.job_id, loaded)
        if job is None:
            raise no_job(command.job_id)
        if isinstance(job, Needs):
            return job
        if job.is_final and self._jobs.is_uncommitted(job.id):
            return Needs((LoadJob(job.id),))  # after the next commit
        self._delete(job)
        return None

    def _delete(self, job: Job) -> None:
        if not job.is_final:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state}; only an ended job can be deleted,"
                " cancel it first"
            )
        self._jobs.delete(job.id)

    def cancel(self, job: Job, now: int) -> Job:
        """End a waiting job, or request its worker to stop a running one."""
        if job.state in WAITING:
            job = self._jobs.track(job)
            self._transitions.finish(job, State.CANCELLED, now)
        elif job.state is State.RUNNING:
            if job.cancel_requested_at is None:
                job.cancel_requested_at = now
                self._jobs.mark_dirty(job)
                self._attempts.stop(job, StopReason.CANCEL)
        elif job.state is not State.CANCELLED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state}; it cannot be cancelled"
            )
        return job

    def _retry(self, job: Job, command: RetryJob, now: int) -> Job:
        if not job.is_final or job.state is State.COMPLETED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state};"
                " only a failed, cancelled or expired job can be retried"
            )
        if job.kept_until == NOT_KEPT:  # the store drops it
            raise no_job(job.id)
        if job.trigger is Trigger.INVOKE:
            raise IllegalTransition(
                f"job {render_id(job.id)} was invoked, so it cannot be queued; invoke it again"
            )
        job = self._jobs.track(job)
        reset_budget(job)
        self._transitions.queue_at(job, now, now)
        if command.due_at is not None:
            self._transitions.put_off(job, max(now, command.due_at), now, elapsed=False)
        return job

    def _run_now(self, job: Job, command: RunNow, now: int) -> Job:
        if job.state not in TIMED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state};"
                " only a scheduled or retrying job can be run early"
            )
        job = self._jobs.track(job)
        self._transitions.queue_at(job, now, now)
        return job

    def _reschedule(self, job: Job, command: Reschedule, now: int) -> Job:
        if job.state not in WAITING or job.state is State.BLOCKED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state}; only a waiting job can be changed"
            )
        job = self._jobs.track(job)
        if command.priority is not None:
            self._transitions.update_rank(job, command.priority)
        if command.delay_us is not None:
            self._transitions.put_off(job, now + command.delay_us, now, elapsed=True)
        elif command.due_at is not None:
            self._transitions.put_off(job, command.due_at, now, elapsed=False)
        return job

    # Follow-ups.

    def _cancel_run(self, job: Job, command: CancelRun, now: int) -> None:
        if not job.is_final:
            self.cancel(job, now)

    def _unblock_run(self, job: Job, command: UnblockRun, now: int) -> None:
        if job.state is not State.BLOCKED:
            return
        job = self._jobs.track(job)
        if job.due_at > now:
            self._transitions.wait_until(job, State.SCHEDULED, job.due_at)
        else:
            self._transitions.queue_at(job, job.due_at, now)

    def _fail_retry(self, job: Job, command: FailRetry, now: int) -> None:
        if job.state is State.RETRYING and job.key == command.key:
            job = self._jobs.track(job)
            assert job.failure is not None, "a job is retried after a failure"
            job.failure = add_reason(job.failure, NEXT_RUN_FIRST)
            self._transitions.finish(job, State.FAILED, now)


def no_job(job_id: int) -> NotFound:
    """Return the error for an id without a job."""
    return NotFound(
        f"there is no job {render_id(job_id)}; ended jobs are deleted after their retention,"
        ' and at once if their "keep" is 0s'
    )


_ACTIONS: dict[type[JobCommand], Callable[[JobCommands, Job, Any, int], Job]] = {
    Cancel: lambda commands, job, _, now: commands.cancel(job, now),
    RetryJob: JobCommands._retry,
    RunNow: JobCommands._run_now,
    Reschedule: JobCommands._reschedule,
}
_FOLLOW_UPS: dict[type[JobFollowUp], Callable[[JobCommands, Job, Any, int], None]] = {
    CancelRun: JobCommands._cancel_run,
    UnblockRun: JobCommands._unblock_run,
    FailRetry: JobCommands._fail_retry,
}
