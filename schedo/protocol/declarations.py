"""Declarations of schedules by code and files: their owners, and what differs between two specs."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from schedo.core.model import BY_HAND, Schedule, ScheduleSpec
from schedo.protocol.schedules import ScheduleRequest, ScheduleResponse

OWNER_PATTERN = r"(code|file|crontab):\S(.*\S)?"
OWNER_CHARACTERS_MAX = 300
OWNER_RULE = (
    f"an owner is code:APP, file:NAME or crontab:HOST/FILE, of at most {OWNER_CHARACTERS_MAX}"
    " printable characters"
)


def is_owner(text: str) -> bool:
    """Return whether the text can be the owner of a declaration."""
    is_short = len(text) <= OWNER_CHARACTERS_MAX
    return is_short and text.isprintable() and bool(re.fullmatch(OWNER_PATTERN, text))


def show_spec(spec: ScheduleSpec) -> dict[str, Any]:
    """Return the spec as plain JSON data, in the fields of the request that puts it."""
    schedule = Schedule(0, spec, 0, 0, 0, None, paused=spec.paused)
    shown = json.loads(msgspec.json.encode(ScheduleResponse.of(schedule)))
    return {name: shown[name] for name in ScheduleRequest.__struct_fields__ if name in shown}


def find_differences(before: ScheduleSpec, after: ScheduleSpec) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ, with both values; None where a spec does not have one.

    A secret in a payload is masked, so that two different payloads may look alike.
    """
    old, new = show_spec(before), show_spec(after)
    is_same_work = before.job.payload == after.job.payload
    return {
        name: (old.get(name), new.get(name))
        for name in ScheduleRequest.__struct_fields__
        if old.get(name) != new.get(name) or (name == "payload" and not is_same_work)
    }


def list_edited(schedule: Schedule) -> list[str]:
    """Return the fields that were changed by hand since the schedule's owner declared them."""
    if schedule.declared is None:
        return []
    return [*find_differences(schedule.declared, schedule.spec)]


def describe_edit(schedule: Schedule) -> str:
    """Return in one sentence what was changed by hand, and until when that stays."""
    return (
        f"{', '.join(list_edited(schedule))}: changed by hand; this stays until {schedule.owner}"
        " declares the schedule differently, or until a reset"
    )


def describe_takeover(before: Schedule | None, owner: str) -> str | None:
    """Return in one sentence that the schedule belonged to another declaration, or None."""
    if before is None or before.owner in (owner, BY_HAND):
        return None
    return f"it now belongs to {owner}; before, {before.owner} declared it"
