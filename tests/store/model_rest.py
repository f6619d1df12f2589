"""What the naive store does for the server, apart from its records of jobs and schedules."""

from __future__ import annotations

from collections import defaultdict

from schedo.core.action_log import LogEntry, LogFilter, NumberedEntry
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_undo import BulkStep
from schedo.core.changes import Changes
from schedo.core.limits import DAY
from schedo.core.model import Job, Schedule
from schedo.core.tallies import (
    DAYS_KEPT,
    HOURS_KEPT,
    Dimension,
    HourTallies,
    Period,
    Tallies,
    add_tallies,
    encode_row,
)
from schedo.store.base import ScheduleRule, StoredNames


class ModelRest:
    """The texts of the last minutes, by their beginnings; nothing is done for a later server."""

    _bulk_operations: dict[int, BulkOperation]
    _jobs: dict[int, Job]
    _schedules: dict[int, Schedule]

    def __init__(self) -> None:
        self._minutes: dict[int, str] = {}
        self._session_key = bytes(32)
        self._steps: dict[tuple[int, int], BulkStep] = {}
        self._log: list[LogEntry] = []
        self._added: set[int] = set()  # batches of tallies
        self._tallies: dict[tuple[Dimension, Period], dict[int, Tallies]] = defaultdict(dict)

    async def save_minute(self, at: int, figures: str, keep_us: int) -> None:
        self._minutes[at] = figures
        self._minutes = {each: it for each, it in self._minutes.items() if each > at - keep_us}

    async def load_minutes(self, after: int) -> list[tuple[int, str]]:
        return sorted((at, figures) for at, figures in self._minutes.items() if at > after)

    async def add_tallies(self, tallies: HourTallies, now: int, batch: int) -> None:
        if batch in self._added:
            return
        self._added.add(batch)
        for (dimension, at), by_name in tallies.items():
            hours, days = (
                self._tallies[dimension, Period.HOUR],
                self._tallies[dimension, Period.DAY],
            )
            add_tallies(hours.setdefault(at, {}), by_name)
            while len(hours) > HOURS_KEPT:
                furthest = max(hours, key=lambda at: (abs(at - now), at))
                day = days.setdefault(furthest - furthest % DAY, {})
                add_tallies(day, hours.pop(furthest))
            while len(days) > DAYS_KEPT:
                del days[max(days, key=lambda at: (abs(at - now), at))]

    async def load_tallies(
        self, dimension: Dimension, period: Period, after: int, before: int, limit: int
    ) -> list[tuple[int, str]]:
        rows = sorted(self._tallies[dimension, period].items())
        found = [(at, encode_row(tallies)) for at, tallies in rows if after < at < before]
        return found[:limit]

    def _commit_rest(self, changes: Changes) -> None:
        self._log += changes.log
        self._steps |= {(step.operation, step.number): step for step in changes.steps}
        gone = {number for number, each in changes.bulk_operations.items() if each is None}
        self._steps = {key: it for key, it in self._steps.items() if key[0] not in gone}
        for key in changes.steps_deleted:
            self._steps.pop(key, None)

    async def load_bulk_step(self, operation: int, before: int) -> BulkStep | None:
        found = [key for key in self._steps if key[0] == operation and key[1] < before]
        return self._steps[max(found)] if found else None

    async def list_bulk_changes(self, job_id: int) -> list[tuple[BulkOperation, int]]:
        found = sorted(
            (step.operation, job.changed_at)
            for step in self._steps.values()
            for job in step.jobs
            if job.id == job_id
        )
        return [(self._bulk_operations[number], at) for number, at in found]

    async def list_log(
        self, which: LogFilter, before: int | None, limit: int
    ) -> list[NumberedEntry]:
        found = [
            NumberedEntry(number, entry)
            for number, entry in enumerate(self._log, 1)
            if (before is None or number < before)
            and which.who in (None, entry.who)
            and which.action in (None, entry.action)
            and which.target in (None, entry.target)
            and (which.before is None or entry.at < which.before)
        ]
        return found[::-1][:limit]

    async def database_health(self) -> None:
        return None

    async def session_key(self) -> bytes:
        return self._session_key

    async def list_names(self, schedules_max: int, tags_max: int) -> StoredNames:
        names = sorted(each.name for each in self._schedules.values())
        tags = sorted({tag for job in self._jobs.values() for tag in job.options.tags})
        return StoredNames(names[:schedules_max], tags[:tags_max])

    async def list_rules(self, after: int, limit: int) -> list[ScheduleRule]:
        found = [
            ScheduleRule(ident, each.name, each.rule)
            for ident, each in sorted(self._schedules.items())
            if ident > after and not each.paused
        ]
        return found[:limit]

    async def recovered(self) -> None:
        pass  # the store has no server before this one

    def note_leaving(self) -> None:
        pass  # the store ends with its server

    def bound_replay(self, is_bounded: bool) -> None: ...
