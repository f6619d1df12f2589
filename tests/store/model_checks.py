"""The checks that can fail a commit of the model; they run before its first change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from schedo.core.changes import Changes
from schedo.core.keep import NOT_KEPT
from schedo.core.model import Job, Schedule, Trigger
from schedo.errors import StoreError

_INSTANT_TRIGGERS = {Trigger.SCHEDULE, Trigger.CATCHUP}


def check_jobs(changes: Changes, jobs: dict[int, Job]) -> None:
    for job in changes.jobs.values():
        if job.is_new and job.id in jobs:
            raise StoreError(f"job {job.id} is already in the store")
        if not job.is_new and job.id not in jobs and job.kept_until != NOT_KEPT:
            raise StoreError(f"job {job.id} is updated but not in the store")
    # The check costs a scan only if the commit has unique keys or instants.
    changed = [job for job in changes.jobs.values() if job.kept_until != NOT_KEPT]
    unkept = changes.jobs.keys() - {job.id for job in changed}
    if unkept:
        jobs = {ident: job for ident, job in jobs.items() if ident not in unkept}
    _check_once(changed, jobs.values(), attrgetter("unique_key"), "unique key")
    _check_once(changed, jobs.values(), _instant, "instant of a schedule")


def check_schedules(changes: Changes, schedules: dict[int, Schedule]) -> None:
    gone = {*changes.schedules, *changes.schedules_deleted}
    names = {schedule.name for schedule in schedules.values() if schedule.id not in gone}
    for schedule in changes.schedules.values():
        if schedule.name in names and schedule.id not in changes.schedules_deleted:
            raise StoreError(f"there are two schedules named {schedule.name}")
        names.add(schedule.name)


def _instant(job: Job) -> object | None:
    if job.trigger in _INSTANT_TRIGGERS and None not in (job.schedule_id, job.scheduled_for):
        return (job.schedule_id, job.scheduled_for, job.offset_us)
    return None


def _check_once(
    changed: Iterable[Job], stored: Iterable[Job], value: Callable[[Job], object | None], name: str
) -> None:
    claimed = {job.id: value(job) for job in changed}
    claims = [claim for claim in claimed.values() if claim is not None]
    if not claims:
        return
    held = {value(job) for job in stored if job.id not in claimed}
    if len(set(claims)) < len(claims) or not held.isdisjoint(claims):
        raise StoreError(f"two jobs claim the same {name}")
