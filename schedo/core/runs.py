"""The run that a fire of a schedule asks for, and who makes it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from schedo.core.catchup import Firing
from schedo.core.model import Job, JobSpec, Overlap, Schedule, Trigger
from schedo.core.triggers import jitter_for


class ScheduledRun(NamedTuple):
    """What a schedule asks the scheduler to make: one job, possibly blocked behind others."""

    spec: JobSpec
    schedule_id: int
    scheduled_for: int
    due_at: int
    trigger: Trigger
    missed_count: int
    is_blocked: bool


class RunCallbacks(Protocol):
    """What the schedules ask of the scheduler; each takes the present instant."""

    def make_run(self, run: ScheduledRun, now: int) -> Job:
        """Make the job of a fire."""

    def cancel_run(self, job_id: int, now: int) -> None:
        """Cancel an unfinished run, wherever it is."""

    def unblock_run(self, job_id: int, now: int) -> None:
        """Queue a run that was blocked."""


def new_run(schedule: Schedule, fire: Firing, is_blocked: bool) -> ScheduledRun:
    """Return the run of a fire; jitter puts it off, unless a person asked for it now."""
    due_at = fire.scheduled_for
    if fire.trigger is not Trigger.MANUAL:
        due_at += jitter_for(schedule.id, fire.scheduled_for, schedule.rule)
    return ScheduledRun(
        schedule.spec.job,
        schedule.id,
        fire.scheduled_for,
        due_at,
        fire.trigger,
        fire.missed_count,
        is_blocked,
    )


def retry_before(schedule: Schedule | None) -> int | None:
    """Return before when a run must be retried: its schedule's next fire, unless they may overlap.

    Source: Cloud Scheduler does not retry past the next scheduled time either.
    """
    if schedule is None or schedule.paused or schedule.spec.overlap is Overlap.ALLOW:
        return None
    return schedule.next_fire_at
