"""The commands on one schedule, and the follow-ups that the core gives itself about one.

All of them find their schedule in memory, else in what was loaded for them: memory wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schedo.core.commands import (
    CheckRetry,
    DeleteSchedule,
    GiveUpRetry,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    ScheduleCommand,
    ScheduleFollowUp,
    TriggerSchedule,
    UnblockNext,
)
from schedo.core.job_table import JobTable
from schedo.core.loads import Appliers, Loaded, LoadSchedule, Needs
from schedo.core.model import Schedule
from schedo.core.runs import retry_before
from schedo.core.schedules import Schedules
from schedo.errors import NotFound


class ScheduleCommands:
    """Changes single schedules by command."""

    def __init__(
        self,
        schedules: Schedules,
        jobs: JobTable,
        give_up_retry: Callable[[GiveUpRetry, int], None],
    ) -> None:
        self._schedules = schedules
        self._jobs = jobs
        self._give_up_retry = give_up_retry
        self.appliers: Appliers = {
            PutSchedule: self._put,
            **dict.fromkeys(_ACTIONS, self._apply),
            **dict.fromkeys(_FOLLOW_UPS, self._follow_up),
        }

    def _put(self, command: PutSchedule, now: int, loaded: Loaded) -> tuple[Schedule, bool] | Needs:
        """Create the schedule or change it to the spec; return it and whether it is new."""
        known = self._find(command.spec.name, loaded)
        if isinstance(known, Needs):
            return known
        return self._schedules.put(command.spec, known, now)

    def _apply(self, command: ScheduleCommand[Any], now: int, loaded: Loaded) -> Any:
        """Change the schedule of the command; raise NotFound."""
        schedule = self._find(command.name, loaded)
        if schedule is None:
            raise NotFound(f"there is no schedule {command.name!r}")
        if isinstance(schedule, Needs):
            return schedule
        return _ACTIONS[type(command)](self._schedules, schedule, command, now)

    def _follow_up(self, command: ScheduleFollowUp, now: int, loaded: Loaded) -> Needs | None:
        """Do the follow-up with the schedule, or with None if it is deleted."""
        schedule = self._find(command.schedule_id, loaded)
        if isinstance(schedule, Needs):
            return schedule
        _FOLLOW_UPS[type(command)](self, schedule, command, now)
        return None

    def _find(self, which: str | int, loaded: Loaded) -> Schedule | Needs | None:
        known = self._schedules.find(which)
        if known is not None:
            return known
        load = LoadSchedule(which)
        return self._schedules.current(which, loaded[load]) if load in loaded else Needs((load,))

    def _check_retry(self, schedule: Schedule | None, command: CheckRetry, now: int) -> None:
        bound = retry_before(schedule)
        if bound is not None and command.due + self._jobs.offset_us >= bound:
            self._give_up_retry(GiveUpRetry(command.key.job_id, command.key), now)

    def _unblock_next(self, schedule: Schedule | None, command: UnblockNext, now: int) -> None:
        if schedule is not None:
            self._schedules.unblock_next(schedule, now)


_ACTIONS: dict[type[ScheduleCommand[Any]], Callable[[Schedules, Schedule, Any, int], object]] = {
    DeleteSchedule: lambda schedules, it, _, now: schedules.delete(it, now),
    PauseSchedule: lambda schedules, it, command, now: schedules.pause(it, command.note, now),
    ResumeSchedule: lambda schedules, it, command, now: schedules.resume(
        it, command.resume_from, now
    ),
    TriggerSchedule: lambda schedules, it, command, now: schedules.trigger(
        it, command.overlap, now
    ),
}
_FOLLOW_UPS: dict[
    type[ScheduleFollowUp], Callable[[ScheduleCommands, Schedule | None, Any, int], None]
] = {
    CheckRetry: ScheduleCommands._check_retry,
    UnblockNext: ScheduleCommands._unblock_next,
}
