"""The results of attempts, and what each means for its job."""

from __future__ import annotations

from collections.abc import Callable

from schedo.core.changes import AttemptRecord, Output
from schedo.core.commands import CheckRetry
from schedo.core.ids import render_id
from schedo.core.job_table import JobTable
from schedo.core.leases import AttemptResult, Completed, Outcome, StopReason
from schedo.core.loads import NOTHING_LOADED, Loaded
from schedo.core.model import Job, Location, Schedule
from schedo.core.outcomes import OutcomeContext, settle
from schedo.core.pauses import Pauses
from schedo.core.placement import Placement
from schedo.core.running import RunningAttempts, is_current_lease
from schedo.core.runs import retry_before
from schedo.core.states import State
from schedo.core.transitions import JobTransitions
from schedo.core.value_limits import fit_report
from schedo.errors import StaleLease

_NOWHERE, _COMPLETED = Location.NOWHERE, State.COMPLETED


class Results:
    """Applies results to their jobs."""

    def __init__(  # noqa: PLR0913  # the parts that a result changes, and what decides about it
        self,
        jobs: JobTable,
        transitions: JobTransitions,
        attempts: RunningAttempts,
        placement: Placement,
        pauses: Pauses,
        find_schedule: Callable[[int], Schedule | None],
        random: Callable[[], float],
        follow_up: Callable[[CheckRetry, int], None],
    ) -> None:
        self._jobs = jobs
        self._pauses = pauses
        self._find_schedule = find_schedule
        self._transitions = transitions
        self._attempts = attempts
        self._placement = placement
        self._random = random
        self._follow_up = follow_up

    def apply(self, result: AttemptResult, now: int, loaded: Loaded = NOTHING_LOADED) -> Job:
        """Apply the result to its job. If it is stale, keep a record of it and raise StaleLease."""
        outcome = result.outcome
        if type(outcome) is not Completed or outcome.result is not None or result.output:
            result = fit_report(result)
            outcome = result.outcome
        key = result.key
        job = self._jobs.find(key.job_id)
        if job is None or not is_current_lease(key, job):
            self._jobs.changes.attempts.append(
                AttemptRecord(key.job_id, key.attempt, key.epoch, None, None, now, "stale", None)
            )
            raise StaleLease(
                f"attempt {key.attempt} of job {render_id(key.job_id)} no longer holds it;"
                " its result was refused"
            )
        self._attempts.results.append(result)  # before any step that can fail
        if result.ran_us is not None and now - result.ran_us > (job.picked_at or 0):
            job.started_at = now - result.ran_us  # picked_at still says when the worker got it
        for capture in result.output:
            self._jobs.changes.outputs.append(Output(key.job_id, key.attempt, capture))
        stop = self._attempts.end(job, key)
        job.location = _NOWHERE
        if type(outcome) is Completed and job.cancel_requested_at is None:
            job.result, job.failure, job.poison_suspect = outcome.result, None, False
            self._transitions.finish(job, _COMPLETED, now)
        else:
            self._settle(job, outcome, stop, now)
        if self._placement.offers:
            self._placement.ended(key, now)
        return job

    def _settle(self, job: Job, outcome: Outcome, stop: StopReason | None, now: int) -> None:
        """Find and apply the transition of a job whose attempt has not simply completed."""
        schedule = None if job.schedule_id is None else self._find_schedule(job.schedule_id)
        # While schedules are paused, no next run comes for which this one would have to be over.
        is_bound = not self._pauses.schedules
        bound = retry_before(schedule) if is_bound else None
        context = OutcomeContext(now, self._random(), stop, bound)
        self._transitions.apply(job, settle(job, outcome, context), now)
        is_unknown = is_bound and schedule is None
        if is_unknown and job.schedule_id is not None and job.state is State.RETRYING:
            due = job.due_at - self._jobs.offset_us
            self._follow_up(CheckRetry(job.schedule_id, job.key, due), now)

    def recover_lost(self, job: Job, outcome: Outcome, now: int) -> None:
        """Apply the outcome to a job that is stored as running but that no worker runs."""
        job = self._jobs.track(job)
        context = OutcomeContext(now, 0.0, None, None)
        self._transitions.apply(job, settle(job, outcome, context), now)
