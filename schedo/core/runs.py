"""Runs of schedules: the request for a run, and the bound of its retries."""

from __future__ import annotations

from typing import NamedTuple

from schedo.core.catchup import Firing
from schedo.core.model import JobSpec, Overlap, Schedule, Trigger
from schedo.core.triggers import jitter_for


class ScheduledRun(NamedTuple):
    """A request to make the job of one fire. A blocked job waits for earlier runs."""

    spec: JobSpec
    schedule: str  # its name
    schedule_id: int
    scheduled_for: int
    due_at: int
    trigger: Trigger
    missed_count: int
    is_blocked: bool


def new_run(schedule: Schedule, fire: Firing, is_blocked: bool) -> ScheduledRun:
    """Return the run of a fire. Jitter delays it, unless the fire is a manual trigger."""
    due_at = fire.scheduled_for
    if fire.trigger is not Trigger.MANUAL:
        due_at += jitter_for(schedule.id, fire.scheduled_for, schedule.rule)
    return ScheduledRun(
        schedule.spec.job,
        schedule.name,
        schedule.id,
        fire.scheduled_for,
        due_at,
        fire.trigger,
        fire.missed_count,
        is_blocked,
    )


def retry_before(schedule: Schedule | None) -> int | None:
    """Return the instant before which a run must be retried, or None: its schedule's next fire.

    Runs that may overlap have no such bound. Google's Cloud Scheduler has the same rule.
    """
    if schedule is None or schedule.paused or schedule.spec.overlap is Overlap.ALLOW:
        return None
    return schedule.next_fire_at
