"""The commands on one schedule, and the follow-ups that the core gives itself about one.

All of them find their schedule in memory, else in what was loaded for them: memory wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from schedo.core.catchup import Firing
from schedo.core.commands import (
    CheckRetry,
    Declared,
    DeclareSchedules,
    DeleteSchedule,
    FailRetry,
    GiveFollowUp,
    PauseSchedule,
    PutEffect,
    PutSchedule,
    ResetSchedule,
    ResumeSchedule,
    ScheduleCommand,
    ScheduleFollowUp,
    Triggered,
    TriggerSchedule,
    UnblockNext,
    UnblockRun,
)
from schedo.core.declarations import check_declaration, plan_declaration, works_as
from schedo.core.expectation_table import Expectations
from schedo.core.ids import IdSource, newest_at
from schedo.core.job_table import JobTable
from schedo.core.loads import Appliers, Loaded, LoadSchedule, Needs
from schedo.core.model import (
    BY_HAND,
    Decision,
    DecisionRecord,
    Rule,
    Schedule,
    ScheduleSpec,
    Trigger,
)
from schedo.core.runs import retry_before
from schedo.core.schedule_table import ScheduleTable
from schedo.core.schedules import Schedules
from schedo.core.triggers import latest_through, next_after
from schedo.errors import NotFound


class ScheduleCommands:
    """Changes single schedules by command."""

    def __init__(
        self,
        table: ScheduleTable,
        schedules: Schedules,
        jobs: JobTable,
        ids: IdSource,
        expectations: Expectations,
        follow_up: GiveFollowUp,
    ) -> None:
        self._expectations = expectations
        self._table = table
        self._schedules = schedules
        self._jobs = jobs
        self._ids = ids
        self._give_follow_up = follow_up
        self.appliers: Appliers = {
            PutSchedule: self._put,
            DeclareSchedules: self._declare,
            **dict.fromkeys(_ACTIONS, self._apply),
            **dict.fromkeys(_FOLLOW_UPS, self._follow_up),
        }

    def _apply(self, command: ScheduleCommand[Any], now: int, loaded: Loaded) -> Any:
        """Change the schedule of the command; raise NotFound."""
        schedule = self._find(command.name, loaded)
        if schedule is None:
            raise NotFound(f"there is no schedule {command.name!r}")
        if isinstance(schedule, Needs):
            return schedule
        return _ACTIONS[type(command)](self, self._table.track(schedule), command, now)

    def _follow_up(self, command: ScheduleFollowUp, now: int, loaded: Loaded) -> Needs | None:
        """Do the follow-up with the schedule, or with None if it is deleted."""
        schedule = self._find(command.schedule_id, loaded)
        if isinstance(schedule, Needs):
            return schedule
        _FOLLOW_UPS[type(command)](self, schedule, command, now)
        return None

    def _find(self, which: str | int, loaded: Loaded) -> Schedule | Needs | None:
        known = self._table.find(which)
        if known is not None:
            return known
        load = LoadSchedule(which)
        return self._table.current(which, loaded[load]) if load in loaded else Needs((load,))

    # Commands.

    def _put(
        self, command: PutSchedule, now: int, loaded: Loaded
    ) -> tuple[Schedule, PutEffect] | Needs:
        known = self._find(command.spec.name, loaded)
        if isinstance(known, Needs):
            return known
        self._check_room([command.spec])
        if known is None:
            return self._create(command.spec, BY_HAND, now), PutEffect.CREATED
        known = self._table.track(known)
        declared = known.declared or known.spec
        effect = self._change(known, command.spec, now)
        if known.owner != BY_HAND:
            known.declared = None if known.spec == declared else declared
        return known, effect

    def _declare(
        self, command: DeclareSchedules, now: int, loaded: Loaded
    ) -> list[Declared] | Needs:
        names = [*(spec.name for spec in command.specs), *command.removed]
        found = {name: self._find(name, loaded) for name in names}
        loads = tuple(
            load for each in found.values() if isinstance(each, Needs) for load in each[0]
        )
        if loads:
            return Needs(loads)
        known = {n: self._table.track(s) for n, s in found.items() if isinstance(s, Schedule)}
        owned = [
            known[n] for n in command.removed if n in known and known[n].owner == command.owner
        ]
        check_declaration(command, (known.get(spec.name) for spec in command.specs), owned)
        plans = [
            (spec, plan_declaration(known.get(spec.name), spec, command)) for spec in command.specs
        ]
        self._check_room([spec for spec, plan in plans if plan is not PutEffect.KEPT], owned)
        put = [self._declare_one(known.get(s.name), s, command, now) for s in command.specs]
        for schedule in owned:
            self._delete(schedule, DeleteSchedule(schedule.name), now)
        return put + [Declared(PutEffect.REMOVED, schedule, schedule) for schedule in owned]

    def _check_room(self, specs: Iterable[ScheduleSpec], removed: Iterable[Schedule] = ()) -> None:
        """Raise Conflict if the change would bring too many expectations."""
        wanted = {spec.name: spec.expect is not None for spec in specs}
        wanted.update({schedule.spec.name: False for schedule in removed})
        with_one = {name for name, is_wanted in wanted.items() if is_wanted}
        self._expectations.check_room(with_one, wanted.keys() - with_one)

    def _declare_one(
        self, known: Schedule | None, spec: ScheduleSpec, command: DeclareSchedules, now: int
    ) -> Declared:
        if known is None:
            made = self._create(spec, command.owner, now)
            return Declared(PutEffect.CREATED, made, None)
        before = known.copy()
        effect = plan_declaration(known, spec, command)
        if effect is PutEffect.KEPT:
            return Declared(effect, known, before)
        self._change(known, spec, now)
        if known.owner != command.owner or known.declared is not None:
            known.owner, known.declared = command.owner, None
            self._table.mark_dirty(known)
        return Declared(effect, known, before)

    def _create(self, spec: ScheduleSpec, owner: str, now: int) -> Schedule:
        first = next_after(spec.rule, now - 1)
        ident = self._ids.next(now)
        schedule = Schedule(ident, spec, now, now, now - 1, first, paused=spec.paused, owner=owner)
        self._table.add(schedule)
        self._table.mark_dirty(schedule)
        self._expectations.follow_schedule(schedule, now)
        return schedule

    def _change(self, schedule: Schedule, spec: ScheduleSpec, now: int) -> PutEffect:
        """Change the spec. A new rule never fires for the past: the watermark moves to now."""
        if schedule.spec == spec:
            return PutEffect.UNCHANGED
        effect = PutEffect.UNCHANGED if works_as(schedule, spec) else PutEffect.CHANGED
        old = schedule.spec
        if old.rule != spec.rule or (schedule.paused and old.paused and not spec.paused):
            self._decide_passed(schedule, now, now)
        schedule.spec = spec
        if old.rule != spec.rule:
            self._change_rule(schedule, old.rule, now)
        if old.paused != spec.paused:
            _set_paused(schedule, spec.paused, now)
        if effect is PutEffect.CHANGED:
            schedule.updated_at = now
        self._table.mark_dirty(schedule)
        self._expectations.follow_schedule(schedule, now)
        self._expectations.align(schedule)
        return effect

    def _change_rule(self, schedule: Schedule, old: Rule, now: int) -> None:
        """Move the watermark to now. After a clock change the two timelines differ."""
        schedule.phase_us = 0
        was_interval = old.every_us is not None
        is_interval = schedule.spec.rule.every_us is not None
        if is_interval and not was_interval:
            schedule.evaluated_through = min(schedule.evaluated_through, now)
        if was_interval and not is_interval:  # so that no instant fires twice
            _restart(schedule, max(now, newest_at(self._ids.last)))
        else:
            _restart(schedule, now)

    def _delete(self, schedule: Schedule, command: DeleteSchedule, now: int) -> None:
        if schedule.blocked is not None:
            self._give_follow_up(UnblockRun(schedule.blocked), now)
        self._table.remove(schedule)
        self._expectations.forget_schedule(schedule.id)

    def _pause(self, schedule: Schedule, command: PauseSchedule, now: int) -> Schedule:
        return self._switch(schedule, True, command.note, now, now)

    def _resume(self, schedule: Schedule, command: ResumeSchedule, now: int) -> Schedule:
        through = now
        if command.resume_from is not None:  # its own instant is not decided either
            through = min(command.resume_from - 1, now)
        return self._switch(schedule, False, None, through, now)

    def _decide_passed(self, schedule: Schedule, through: int, now: int) -> None:
        """Leave one decision about the instants that have passed and will not fire any more."""
        latest, count = latest_through(schedule.rule, schedule.evaluated_through, through, 1)
        if not count:
            return
        self._ids.reach(now)  # a later cron rule begins after these instants
        decision = Decision.PAUSED if schedule.paused else Decision.MISSED
        schedule.missed += 0 if schedule.paused else count
        record = DecisionRecord(schedule.id, latest[0], now, decision, None, count)
        self._jobs.changes.decisions.append(record)

    def _switch(
        self, schedule: Schedule, paused: bool, note: str | None, through: int, now: int
    ) -> Schedule:
        schedule.note = note
        schedule.updated_at = now
        if schedule.paused and not paused:
            self._decide_passed(schedule, through, now)
        _set_paused(schedule, paused, through)
        self._expectations.align(schedule)
        self._table.mark_dirty(schedule)
        return schedule

    def _reset(
        self, schedule: Schedule, command: ResetSchedule, now: int
    ) -> tuple[Schedule, PutEffect]:
        declared, effect = schedule.declared, PutEffect.UNCHANGED
        if declared is not None:
            self._check_room([declared])
            schedule.declared = None
            effect = self._change(schedule, declared, now)
        return schedule, effect

    def _trigger(self, schedule: Schedule, command: TriggerSchedule, now: int) -> Triggered:
        fire, overlap = Firing(now, Trigger.MANUAL), command.overlap or schedule.spec.overlap
        job_id, skipped_by = self._schedules.run(schedule, fire, overlap, now)
        self._table.mark_dirty(schedule)
        return Triggered(self._jobs.find(job_id or 0), skipped_by)

    # Follow-ups.

    def _check_retry(self, schedule: Schedule | None, command: CheckRetry, now: int) -> None:
        bound = retry_before(schedule)
        if bound is not None and command.due + self._jobs.offset_us >= bound:
            self._give_follow_up(FailRetry(command.key.job_id, command.key), now)

    def _unblock_next(self, schedule: Schedule | None, command: UnblockNext, now: int) -> None:
        if schedule is not None:
            self._schedules.unblock_next(schedule, now)


def _set_paused(schedule: Schedule, paused: bool, through: int) -> None:
    if schedule.paused and not paused:
        _restart(schedule, through)
        schedule.note = None
    schedule.paused = paused


def _restart(schedule: Schedule, through: int) -> None:
    """Set the watermark, but never back to instants with a decision: they would fire twice."""
    schedule.evaluated_through = max(through, schedule.evaluated_through)
    schedule.next_fire_at = next_after(schedule.rule, schedule.evaluated_through)


_ACTIONS: dict[
    type[ScheduleCommand[Any]], Callable[[ScheduleCommands, Schedule, Any, int], object]
] = {
    DeleteSchedule: ScheduleCommands._delete,
    PauseSchedule: ScheduleCommands._pause,
    ResetSchedule: ScheduleCommands._reset,
    ResumeSchedule: ScheduleCommands._resume,
    TriggerSchedule: ScheduleCommands._trigger,
}
_FOLLOW_UPS: dict[
    type[ScheduleFollowUp], Callable[[ScheduleCommands, Schedule | None, Any, int], None]
] = {
    CheckRetry: ScheduleCommands._check_retry,
    UnblockNext: ScheduleCommands._unblock_next,
}
