"""Records with sensible defaults; a test names only the fields that matter to it."""

from __future__ import annotations

from typing import Any

from schedo.core.model import Job, JobSpec, Rule, Schedule, ScheduleSpec
from schedo.core.states import State

PER_MICROSECOND = 256  # ids in one microsecond, see schedo/core/ids.py


def make_job(**overrides: Any) -> Job:
    """Return a new queued job; created_at, due_at and rank follow from its id unless given."""
    job_id = overrides.get("id", PER_MICROSECOND)
    created_at = overrides.get("created_at", job_id // PER_MICROSECOND)
    due_at = overrides.get("due_at", created_at)
    values: dict[str, Any] = {
        "id": job_id,
        "task": "email.send",
        "state": State.QUEUED,
        "created_at": created_at,
        "due_at": due_at,
        "rank": due_at,
        "is_new": True,
    }
    return Job(**values | overrides)


def make_spec(**overrides: Any) -> ScheduleSpec:
    """Return the spec of a schedule: a report every minute."""
    values: dict[str, Any] = {
        "name": "report",
        "rule": Rule(every_us=60_000_000),
        "job": JobSpec(task="report.make"),
    }
    return ScheduleSpec(**values | overrides)


def make_schedule(**overrides: Any) -> Schedule:
    """Return a schedule; what its spec has too (name, overlap ...) goes into the spec."""
    fields = ScheduleSpec.__struct_fields__
    in_spec = {
        name: overrides.pop(name) for name in fields if name in overrides and name != "paused"
    }
    values: dict[str, Any] = {
        "id": 1,
        "spec": make_spec(**in_spec),
        "created_at": 0,
        "updated_at": 0,
        "evaluated_through": 0,
        "next_fire_at": 60_000_000,
    }
    return Schedule(**values | overrides)
