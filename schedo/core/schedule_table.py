"""The schedule records in memory, and the order in which they fire.

A record stays in memory while the order holds it, or while the store does not have its newest
version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedo.core.blocked_runs import BlockedRuns
from schedo.core.fire_order import FireOrder
from schedo.core.job_table import JobTable
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX, WINDOW_ENTRIES
from schedo.core.loads import LoadSchedules
from schedo.core.model import Schedule
from schedo.core.states import State


class ScheduleTable:
    """Schedule records by id and by name. `order` holds those that fire soonest."""

    def __init__(self, jobs: JobTable, capacity: int = WINDOW_ENTRIES) -> None:
        self._jobs = jobs
        self._schedules: dict[int, Schedule] = {}
        self._names: dict[str, int] = {}
        self.blocked = BlockedRuns(capacity)
        self.order = FireOrder(capacity, self._payload_bytes)
        self._evictable: set[int] = set()  # perhaps held nowhere; checked at the next commit
        self._has_large = False  # one with a large payload has been armed since the last commit

    def find(self, which: str | int) -> Schedule | None:
        """Return the record by name or id if it is in memory."""
        ident = self._names.get(which) if isinstance(which, str) else which
        return self._schedules.get(ident) if ident is not None else None

    def current(self, which: str | int, loaded: Schedule | None) -> Schedule | None:
        """Return the schedule, given the loaded record; memory wins."""
        known = self.find(which)
        if known is None and loaded is not None and not self._is_deleted(loaded):
            return loaded
        return known

    def _is_deleted(self, schedule: Schedule) -> bool:
        return schedule.id in self._jobs.changes.schedules_deleted

    def track(self, schedule: Schedule) -> Schedule:
        """Add a loaded record, or return the one in memory, which wins."""
        known = self._schedules.get(schedule.id)
        if known is not None:
            return known
        self.add(schedule)
        self.review((schedule,))
        return schedule

    def add(self, schedule: Schedule) -> None:
        """Add a record of which no run can have uncommitted changes."""
        self._schedules[schedule.id] = schedule
        self._names[schedule.name] = schedule.id
        self._evictable.add(schedule.id)

    def remove(self, schedule: Schedule) -> None:
        """Remove the record of a deleted schedule."""
        self._schedules.pop(schedule.id, None)
        self._names.pop(schedule.name, None)
        self.blocked.discard(schedule.id)
        self.order.disarm(schedule.id)
        self._jobs.changes.schedules.pop(schedule.id, None)
        self._jobs.changes.schedules_deleted.append(schedule.id)

    def set_blocked(self, schedule: Schedule, job_id: int | None) -> None:
        """Note the blocked run of the schedule, or that it has none."""
        schedule.blocked = job_id
        if job_id is None:
            self.blocked.discard(schedule.id)
        else:
            self.blocked.add(schedule.id)

    def mark_dirty(self, schedule: Schedule, fired_at: int | None = None) -> None:
        """Mark the record as changed, so that the next commit writes it, and arm its next fire.

        fired_at: the instant of the fire that has changed it.
        """
        self._jobs.changes.schedules[schedule.id] = schedule
        self.arm(schedule, fired_at)

    def arm(self, schedule: Schedule, fired_at: int | None = None) -> None:
        """Arm the next fire if it is before the horizon, or if the schedule fires frequently."""
        at, ident = schedule.next_fire_at, schedule.id
        is_large = len(schedule.spec.job.payload) > PAYLOAD_INLINE_BYTES_MAX
        if schedule.paused or at is None:
            self.order.disarm(ident)
            self._evictable.add(ident)
        elif fired_at is not None and not is_large and self.order.keep(ident, at, fired_at):
            return
        elif not self.order.arm(ident, at):
            self._evictable.add(ident)
        self._evictable.update(self.order.trim())
        self._has_large = self._has_large or is_large

    def shift(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time, and load the order of fires again."""
        for schedule in self._schedules.values():
            schedule.shift(delta_us)
        self.order.restart()
        self._evictable.update(self._schedules)

    def extend(self, load: LoadSchedules, page: list[Schedule]) -> None:
        """Add a page of schedules."""
        if not self.order.extend(load, page):
            return
        new = [s for s in page if s.id not in self._schedules and not self._is_deleted(s)]
        for schedule in new:
            self._schedules[schedule.id] = schedule
            self._names[schedule.name] = schedule.id
        self.review(new)
        ids = [s.id for s in page if s.id in self._schedules]
        for ident in dict.fromkeys([*ids, *self._jobs.changes.schedules]):
            if not self.order.take(load, self._schedules[ident]):
                self._evictable.add(ident)
        self._evictable.update(self.order.trim())
        self._evictable.update(self.order.trim_payloads())

    def _payload_bytes(self, ids: Iterable[int]) -> int:
        return sum(len(self._schedules[ident].spec.job.payload) for ident in ids)

    def committed(self) -> None:
        """Evict the records that the order does not hold and the store has."""
        if self._has_large:  # small payloads are bounded by their number
            self._has_large = False
            self._evictable.update(self.order.trim_payloads())
        kept = self._jobs.changes.schedules
        loose, self._evictable = self._evictable, {i for i in self._evictable if i in kept}
        for ident in loose - self._evictable:
            if ident in self._schedules and ident not in self.order:
                del self._names[self._schedules.pop(ident).name]

    def review(self, loaded: Sequence[Schedule]) -> None:
        """Correct the loaded active runs by the changes that are not yet durable."""
        by_id = {schedule.id: schedule for schedule in loaded}
        for job in self._jobs.changes.jobs.values():
            known = by_id.get(job.schedule_id or 0)
            if known is None:
                continue
            if job.id in known.active:
                known.active.remove(job.id)
            if not job.is_final:
                known.active.append(job.id)
            if known.blocked == job.id and job.state is not State.BLOCKED:
                known.blocked = None
