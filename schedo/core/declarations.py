"""What a declaration does to a schedule: code and files declare schedules, hands change them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from schedo.core.commands import DeclareSchedules, PutEffect
from schedo.core.model import Schedule, ScheduleSpec


def works_as(schedule: Schedule, spec: ScheduleSpec) -> bool:
    """Return whether the schedule works as the spec says, which may have been paused by hand."""
    if schedule.spec == spec:
        return True
    return schedule.paused == spec.paused and replace(schedule.spec, paused=spec.paused) == spec


def plan_declaration(
    known: Schedule | None, spec: ScheduleSpec, command: DeclareSchedules
) -> PutEffect:
    """Return what the command does to the schedule; known: its current record, if there is one."""
    if known is None:
        return PutEffect.CREATED
    if command.keeps_edits and known.owner == command.owner and known.declared == spec:
        return PutEffect.KEPT
    return PutEffect.UNCHANGED if works_as(known, spec) else PutEffect.CHANGED


def check_declaration(
    command: DeclareSchedules, replaced: Iterable[Schedule | None], removed: Iterable[Schedule]
) -> None:
    """Raise Forbidden if the caller may not replace or delete one of the current records."""
    if command.check is None:
        return
    for schedule in filter(None, replaced):
        command.check("replace", schedule)
    for schedule in removed:
        command.check("delete", schedule)
