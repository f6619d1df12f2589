"""Small builders for the core's tests: instants on a number line, specs, records and offers."""

from __future__ import annotations

from typing import Any

from schedo.core.model import (
    PLAIN,
    Job,
    JobSpec,
    Options,
    Retry,
    Rule,
    Schedule,
    ScheduleSpec,
    Unique,
)
from schedo.core.worker_pool import WorkerSpec

T0 = 0
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60_000_000
HOUR = 3_600_000_000
DAY = 86_400_000_000


def make_spec(task: str = "work", **fields: Any) -> JobSpec:
    """Return a spec; options may be given by their own names."""
    options = {
        name: fields.pop(name)
        for name in ("retry", "timeout_us", "at_most_once", "unique", "tags")
        if name in fields
    }
    return JobSpec(task, options=Options(**options) if options else PLAIN, **fields)


def keyed(key: str = "k", **unique: Any) -> JobSpec:
    """Return a spec with a unique key."""
    return make_spec(unique=Unique(key, **unique))


def make_job(ident: int = 1, **fields: Any) -> Job:
    """Return a record as the store would load it."""
    return Job(id=ident, **{"task": "work", **fields})


def tries(count: int, **fields: Any) -> Retry:
    """Return a policy with fixed delays of 10 s and no jitter."""
    return Retry(count, "fixed", 10 * SECOND, jitter=0.0, **fields)


def worker_spec(worker_id: str = "w", slots: int = 10, **fields: Any) -> WorkerSpec:
    """Return the spec of a worker; by default it runs all tasks of all queues."""
    return WorkerSpec(worker_id, slots, **fields)


def every(seconds: int, **fields: Any) -> Rule:
    """Return a rule that fires at whole multiples of the seconds."""
    return Rule(every_us=seconds * SECOND, **fields)


def make_schedule_spec(name: str = "s", rule: Rule | None = None, **fields: Any) -> ScheduleSpec:
    """Return a schedule's spec, each minute by default."""
    job = fields.pop("job", None) or make_spec()
    return ScheduleSpec(name, rule or every(60), job, **fields)


def make_schedule(spec: ScheduleSpec | None = None, **fields: Any) -> Schedule:
    """Return a schedule's record, created at T0 with its first fire a minute later."""
    defaults: dict[str, Any] = {
        "id": 1,
        "created_at": T0,
        "updated_at": T0,
        "evaluated_through": T0,
        "next_fire_at": MINUTE,
    }
    return Schedule(spec=spec or make_schedule_spec(), **{**defaults, **fields})
