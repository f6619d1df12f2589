"""The loads that the parts of the scheduler have requested, and the delivery of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from schedo.core import loads
from schedo.core.expiry import Expiry
from schedo.core.job_table import JobTable
from schedo.core.schedule_table import ScheduleTable
from schedo.core.schedules import Schedules


class Loading:
    """Collects the loads of a turn, and gives each result to the part that waits for it."""

    def __init__(
        self,
        requested: list[loads.Load],
        jobs: JobTable,
        schedule_table: ScheduleTable,
        schedules: Schedules,
        expiry: Expiry,
        follow_up: Callable[..., None],
    ) -> None:
        """requested: where the other parts add their loads; the pages come from the tables."""
        self._requested = requested
        self._jobs = jobs
        self._schedule_table = schedule_table
        self._schedules = schedules
        self._expiry = expiry
        self._follow_up = follow_up

    @property
    def is_needed(self) -> bool:
        """Whether a record or a page must be loaded."""
        return bool(
            self._requested or self._jobs.needs_loads() or self._schedule_table.order.needs_page()
        )

    def take(self) -> list[loads.Load]:
        """Return the loads that the store must carry out, each once."""
        requested = self._requested.copy()
        self._requested.clear()
        # Promotions change the store, and all other loads must see that change: they go first.
        return self._jobs.loads() + requested + self._schedule_table.order.loads()

    def deliver(self, loaded: Sequence[tuple[loads.Load, Any]], now: int) -> None:
        """Apply the loaded records. Where memory has a newer record, it wins."""
        for load, found in loaded:
            self._deliver(load, found, now)
        self._jobs.place_changed()

    def _deliver(  # noqa: C901, PLR0912  # one arm for each kind of load
        self, load: loads.Load, loaded: Any, now: int
    ) -> None:
        match load:
            case loads.LoadTimers():
                self._jobs.extend_timers(load, loaded)
            case loads.PromoteDue():
                self._jobs.promoted(load, loaded)
            case loads.LoadReady():
                self._jobs.extend_ready(load, loaded)
            case loads.LoadSchedules():
                self._schedule_table.extend(load, loaded)
            case loads.LoadBlocked():
                following = self._schedules.take_blocked(load, loaded, now)
                self._requested += [] if following is None else [following]
            case loads.LoadExpired():
                self._expiry.take(load, loaded, now)
            case loads.LoadJob(job_id, follow_up) if follow_up is not None:
                self._follow_up(follow_up, now, {loads.LoadJob(job_id): loaded})
            case loads.LoadSchedule(which, follow_up) if follow_up is not None:
                self._follow_up(follow_up, now, {loads.LoadSchedule(which): loaded})
            case _:
                pass  # it is for a command, which the engine applies again
