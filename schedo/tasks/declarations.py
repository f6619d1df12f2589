"""Puts the schedules that an application's code declares, and logs what that did.

A change by hand stays until the code declares the schedule differently. What the code no longer
declares stays too, unless the start prunes it: another version of the code may still need it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from schedo.core.commands import Declared, DeclareSchedules, PutEffect
from schedo.core.model import ScheduleSpec
from schedo.engine.engine import Engine
from schedo.protocol.declarations import describe_edit, describe_takeover, list_edited

_NAMES_LOGGED_MAX = 10
_WORDS = {PutEffect.UNCHANGED: "up to date", PutEffect.KEPT: "changed by hand"}

log = logging.getLogger("schedo")


async def declare_schedules(
    engine: Engine,
    owner: str,
    specs: Sequence[ScheduleSpec],
    *,
    is_pruning: bool,
    prune_hint: str = "a start with --prune",
) -> list[Declared]:
    """Put the schedules in one commit; return what that did to each, the removed ones last.

    prune_hint: what deletes the schedules that the owner no longer declares.
    """
    undeclared = await engine.declarations.find_undeclared(owner, {spec.name for spec in specs})
    if not specs and not undeclared:
        return []
    removed = undeclared if is_pruning else ()
    command = DeclareSchedules(owner, specs, removed, keeps_edits=True)
    done = await engine.declarations.put(command)
    _log_effects(owner, specs, done)
    for each in done:
        _log_surprise(owner, each)
    if undeclared and not is_pruning:
        log.warning(
            "%s no longer declares %s, which will fire until deleted: schedo schedules rm NAME"
            " deletes one, %s deletes all that are no longer declared",
            owner,
            _join(undeclared),
            prune_hint,
            extra={"fields": {"owner": owner, "schedules": undeclared}},
        )
    return done


def _log_effects(owner: str, specs: Sequence[ScheduleSpec], done: Sequence[Declared]) -> None:
    names: dict[PutEffect, list[str]] = {}
    for each in done:
        names.setdefault(each.effect, []).append(each.schedule.name)
    parts = [
        f"{len(names[effect])} {_WORDS.get(effect, effect)}"
        + ("" if effect is PutEffect.UNCHANGED else f" ({_join(names[effect])})")
        for effect in PutEffect
        if effect in names
    ]
    elsewhere = {spec.name for spec in specs} - {each.schedule.name for each in done}
    if elsewhere:  # each server of a cluster has put those whose shards it owns
        parts.append(f"{len(elsewhere)} in shards of other servers")
    log.info("schedules of %s: %s", owner, ", ".join(parts))


def _log_surprise(owner: str, declared: Declared) -> None:
    """Log that a schedule was changed by hand, or belonged to another declaration."""
    effect, schedule, before = declared
    text = describe_takeover(before, owner)
    if effect is PutEffect.KEPT:
        text = f"{describe_edit(schedule)} (schedo schedules reset {schedule.name})"
    elif effect is PutEffect.CHANGED and before is not None and before.declared is not None:
        lost = ", ".join(list_edited(before))
        text = f"{owner} declares it differently now, which replaces a change by hand of {lost}"
    if text is not None:
        fields = {"schedule": schedule.name, "owner": owner}
        log.warning("schedule %s: %s", schedule.name, text, extra={"fields": fields})


def _join(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_LOGGED_MAX])
    more = len(names) - _NAMES_LOGGED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
