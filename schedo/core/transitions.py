"""Transitions of one job: into a ready queue, to a later instant, or to its end."""

from __future__ import annotations

from schedo.core.bulk_undo import JobBefore
from schedo.core.changes import AttemptRecord
from schedo.core.ends import REQUEUED, RETRIED, end_of
from schedo.core.event_jobs import facts_of_failure
from schedo.core.expectation_table import Expectations
from schedo.core.job_maker import JobMaker
from schedo.core.job_table import JobTable
from schedo.core.keep import NOT_KEPT, kept_until
from schedo.core.model import ONCE, Job, Trigger
from schedo.core.outcomes import FailedAttempt, Transition, requeue_rank
from schedo.core.run_history import end_run
from schedo.core.schedules import Schedules
from schedo.core.states import FINAL, State

# Access to an enum member through its class costs as much as a small call, and happens per job.
_FAILED = State.FAILED
_FAILURES = frozenset({"failed", "timeout", "lost"})  # outcomes of attempts


class JobTransitions:
    """Moves jobs to their next state and notifies their schedules."""

    def __init__(
        self,
        jobs: JobTable,
        schedules: Schedules,
        maker: JobMaker,
        expectations: Expectations,
    ) -> None:
        self._jobs = jobs
        self._schedules = schedules
        self._maker = maker
        self._expectations = expectations
        self._failed: list[FailedAttempt] = []

    def take_failed(self) -> list[FailedAttempt]:
        """Return the attempts that failed or were lost since the last call."""
        failed, self._failed = self._failed, []
        return failed

    def apply(self, job: Job, transition: Transition, now: int) -> None:
        """End the running attempt and move the job as the transition says."""
        self._jobs.changes.attempts.append(
            AttemptRecord(
                job.id,
                job.attempt,
                job.epoch,
                job.worker,
                job.started_at,
                now,
                transition.evidence,
                transition.failure,
                job.due_at,
                None if job.picked_at == job.started_at else job.picked_at,
            )
        )
        is_lost = transition.evidence == "lost"
        if transition.state not in FINAL:
            outcome = RETRIED if transition.evidence in _FAILURES else REQUEUED
            self._jobs.changes.ends.append(
                end_of(job, outcome, self._jobs.offset_us, now, is_lost=is_lost)
            )
        job.failures += transition.failures
        job.losses += transition.losses
        job.poison_suspect = transition.poison_suspect
        job.failure = transition.failure
        job.result = transition.result
        if transition.state is State.QUEUED:
            self.queue_at(job, job.due_at, now, is_front=transition.requeue_first)
        elif transition.due_at is not None:
            self.wait_until(job, transition.state, transition.due_at)
        else:
            self.finish(job, transition.state, now, is_lost=is_lost)
        if transition.failure is not None and transition.state is not State.CANCELLED:
            self._note_failed(job, transition)

    def refuse(self, job: Job, now: int) -> None:
        """End a job of the inbox that is not accepted; its failure says why."""
        self.finish(job, _FAILED, now)
        retry = job.options.retry or ONCE
        no_attempt = (0, _FAILED.value, job.failure, 0, retry.max_attempts)
        # The reason may quote the payload, which the job does not have.
        self._jobs.changes.refused.append(
            FailedAttempt(job.id, job.task, *no_attempt, _FAILED, job.due_at, payload=None)
        )

    def _note_failed(self, job: Job, transition: Transition) -> None:
        retry = job.options.retry or ONCE
        self._failed.append(
            FailedAttempt(
                job.id,
                job.task,
                job.attempt,
                transition.evidence,
                transition.failure,
                job.failures,
                retry.max_attempts,
                transition.state,
                job.due_at,
                job.payload,
                job.options.schedule,
            )
        )

    def finish(self, job: Job, state: State, now: int, *, is_lost: bool = False) -> None:
        """End the job; is_lost: its attempt was lost, so it is unknown when that ended."""
        changes = self._jobs.changes
        changes.ends.append(end_of(job, state, self._jobs.offset_us, now, is_lost=is_lost))
        if job.schedule_id is not None:
            changes.ended_runs.append(end_run(job, job.schedule_id, state, now))
        self._jobs.move(job, state)
        job.ended_at = now
        job.due_elapsed = job.expires_elapsed = False  # the instants of ended jobs never shift
        keeps = self._jobs.keeps
        if keeps or job.options.keep is not None:
            job.kept_until = kept_until(job, keeps.get(job.queue), now, self._jobs.offset_us)
            if job.kept_until == NOT_KEPT:
                changes.dropped.append(job)
        if state is _FAILED and job.options.on_failure is not None:  # in the commit of the failure
            facts = facts_of_failure(job)
            self._maker.make_event_job(job.options.on_failure, facts, Trigger.ON_FAILURE, now)
        if job.schedule_id is not None:
            self._schedules.job_ended(job, now)
            self._expectations.run_ended(job, now)

    def put_back(self, job: Job, before: JobBefore, now: int) -> None:
        """Give the job the state and the due instant that it had before an operation.

        The job is as the operation has left it.
        """
        if before.had_ended:
            self._end_again(job, before, now)
            return
        if job.is_final:
            job.ended_at = job.kept_until = job.cancel_requested_at = None
            job.expires_elapsed = before.expires_elapsed
            self.queue_at(job, before.due_at, now)
        if before.due_at > now:
            self.put_off(job, before.due_at, now, elapsed=before.due_elapsed)

    def _end_again(self, job: Job, before: JobBefore, now: int) -> None:
        """End a job again that an operation has queued again.

        Its end had its effects when it came first, so it has none now.
        """
        self._jobs.move(job, before.state)
        job.failures, job.losses = before.failures, before.losses
        job.ended_at, job.kept_until = before.ended_at, before.kept_until
        job.failure, job.cancel_requested_at = before.failure, before.cancel_requested_at
        job.due_at, job.expires_at = before.due_at, before.expires_at
        job.due_elapsed = job.expires_elapsed = False
        if job.schedule_id is not None:
            self._schedules.job_ended(job, now)

    def queue_at(self, job: Job, due_at: int, now: int, *, is_front: bool = False) -> None:
        """Queue the job for a worker."""
        self._jobs.move(job, State.QUEUED)
        job.due_at = due_at
        job.rank = requeue_rank(job, self._jobs.offset_us) if is_front else self._jobs.rank(job)
        self._jobs.index(job)
        if job.schedule_id is not None:
            self._schedules.run_requeued(job)

    def put_off(self, job: Job, due_at: int, now: int, *, elapsed: bool) -> None:
        """Let the job wait for another instant, or queue it if that has come."""
        if due_at <= now:
            self.queue_at(job, due_at, now)
        else:
            state = State.RETRYING if job.state is State.RETRYING else State.SCHEDULED
            self.wait_until(job, state, due_at, elapsed=elapsed)

    def update_rank(self, job: Job, priority: int) -> None:
        """Give a waiting job another priority; apart from that it keeps its place.

        Its rank may be another one than that of its due instant: it was requeued at the front, or
        the clock was set since it became due.
        """
        moved_us = job.rank - self._jobs.rank(job)
        job.priority = priority
        self._jobs.move(job, job.state)
        job.rank = self._jobs.rank(job) + moved_us
        self._jobs.index(job)

    def wait_until(self, job: Job, state: State, due_at: int, *, elapsed: bool = True) -> None:
        """Let the job wait for the instant. `elapsed`: a clock change moves the instant along."""
        self._jobs.move(job, state)
        job.due_at = due_at
        job.due_elapsed = elapsed
        job.rank = self._jobs.rank(job)
        self._jobs.index(job)
