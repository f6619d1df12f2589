"""Declarations of schedules and queues by code and files: the request, the response, the owners."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct

from schedo.core import limits
from schedo.core.commands import PutEffect
from schedo.core.expectations import Expectation
from schedo.core.model import BY_HAND, JobSpec, Queue, Schedule, ScheduleSpec
from schedo.protocol import fields
from schedo.protocol.expectations import ExpectationRequest
from schedo.protocol.fields import Duration
from schedo.protocol.keep import KeepRequest, show_keep
from schedo.protocol.queues import Concurrency, QueuePatch, Weight
from schedo.protocol.schedules import ScheduleRequest, ScheduleResponse
from schedo.protocol.times import render_duration

OWNER_PATTERN = r"(code|file|crontab):\S(.*\S)?"
OWNER_CHARACTERS_MAX = 300
OWNER_RULE = (
    f"an owner is code:APP, file:NAME or crontab:HOST/FILE, of at most {OWNER_CHARACTERS_MAX}"
    " printable characters"
)


Owner = Annotated[
    str,
    Meta(
        description="What declares them: code:APP, file:NAME or crontab:HOST/FILE.",
        extra_json_schema={"pattern": f"^{OWNER_PATTERN}$", "maxLength": OWNER_CHARACTERS_MAX},
    ),
]
_PRIORITY_STEP = render_duration(limits.PRIORITY_STEP_US)


class ScheduleEntry(ScheduleRequest, kw_only=True):
    """A declared schedule: its name and the fields of a put."""

    name: fields.Name


class ExpectationEntry(ExpectationRequest, kw_only=True):
    """A declared expectation of work outside: its name and the fields of a put."""

    name: fields.Name


class QueueEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A declared queue. Limits that are not given are the defaults; a pause is kept."""

    name: fields.Name
    concurrency: Concurrency | None = None  # null: as many as there are slots
    weight: Weight = 1
    priority_step: Duration = _PRIORITY_STEP
    keep: KeepRequest | None = None  # null: as the general retention says
    paused: bool | None = None  # null: as it is

    def read(self) -> dict[str, Any]:
        """Return the settings by the name of a Queue's field."""
        fields.read_name("/name", self.name)
        patch = QueuePatch(self.concurrency, self.weight, self.priority_step, self.keep)
        return patch.read() | ({} if self.paused is None else {"paused": self.paused})


class DeclarationRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All schedules and named expectations of an owner, and queues with their settings."""

    owner: Owner
    schedules: Annotated[list[ScheduleEntry], Meta(max_length=limits.DECLARED_MAX)] = []
    queues: Annotated[list[QueueEntry], Meta(max_length=limits.DECLARED_MAX)] = []
    expectations: Annotated[list[ExpectationEntry], Meta(max_length=limits.DECLARED_MAX)] = []
    prune: bool = False  # delete the owner's other schedules and expectations
    keep_edits: bool = False  # as the start of an application does
    dry_run: bool = False  # respond with what would change, and change nothing


class FieldChange(Struct, forbid_unknown_fields=True):
    """A field that changes; null: it is not given."""

    field: str
    before: Any
    after: Any

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Self]:
        """Return the fields that differ."""
        names = dict.fromkeys([*before, *after])
        return [
            cls(name, before.get(name), after.get(name))
            for name in names
            if before.get(name) != after.get(name)
        ]


class DeclaredResponse(Struct, forbid_unknown_fields=True):
    """What a declaration does to one record, and the fields that it changes."""

    name: str
    effect: PutEffect
    changes: list[FieldChange]
    warnings: list[str]


class DeclarationResponse(Struct, forbid_unknown_fields=True):
    """What a declaration does. undeclared: what else the owner has, which stays."""

    owner: str
    schedules: list[DeclaredResponse]
    queues: list[DeclaredResponse]
    expectations: list[DeclaredResponse]
    undeclared: list[str]
    undeclared_expectations: list[str]


def is_owner(text: str) -> bool:
    """Return whether the text can be the owner of a declaration."""
    is_short = len(text) <= OWNER_CHARACTERS_MAX
    return is_short and text.isprintable() and bool(re.fullmatch(OWNER_PATTERN, text))


def show_spec(spec: ScheduleSpec) -> dict[str, Any]:
    """Return the spec as plain JSON data, in the fields of the request that puts it."""
    schedule = Schedule(0, spec, 0, 0, 0, None, paused=spec.paused)
    shown = json.loads(msgspec.json.encode(ScheduleResponse.of(schedule)))
    return {name: shown[name] for name in ScheduleRequest.__struct_fields__ if name in shown}


def render_entry(spec: ScheduleSpec) -> dict[str, Any]:
    """Return the spec as an entry of a request; unlike a response, it has the secrets."""
    entry = {"name": spec.name, **show_spec(spec), "payload": json.loads(spec.job.payload)}
    _reveal(entry, "on_failure", spec.job.options.on_failure)
    if spec.expect is not None:
        _reveal(entry["expect"], "on_miss", spec.expect.on_miss)
        _reveal(entry["expect"], "on_back", spec.expect.on_back)
    return entry


def _reveal(fields: dict[str, Any], name: str, job: JobSpec | None) -> None:
    if job is not None:
        fields[name]["payload"] = json.loads(job.payload)


def find_differences(before: ScheduleSpec, after: ScheduleSpec) -> list[FieldChange]:
    """Return the fields that differ.

    A secret in a payload is masked, so that two different payloads may look alike.
    """
    old, new = show_spec(before), show_spec(after)
    found = FieldChange.between(old, new)
    if old["payload"] == new["payload"] and before.job.payload != after.job.payload:
        found.append(FieldChange("payload", old["payload"], new["payload"]))
    return found


def show_queue(queue: Queue) -> dict[str, Any]:
    """Return the settings of the queue as plain JSON data, in the fields of its declaration."""
    step = render_duration(queue.priority_step_us)
    return {
        "concurrency": queue.concurrency,
        "weight": queue.weight,
        "priority_step": step,
        "keep": None if queue.keep is None else show_keep(queue.keep),
        "paused": queue.paused,
    }


def list_edited(schedule: Schedule) -> list[str]:
    """Return the fields that were changed by hand since the schedule's owner declared them."""
    if schedule.declared is None:
        return []
    return [each.field for each in find_differences(schedule.declared, schedule.spec)]


def describe_edit(schedule: Schedule) -> str:
    """Return in one sentence what was changed by hand, and until when that stays."""
    return (
        f"{', '.join(list_edited(schedule))}: changed by hand; this stays until {schedule.owner}"
        " declares the schedule differently, or until a reset"
    )


def describe_takeover(
    before: Schedule | Expectation | None, owner: str, *, is_dry_run: bool = False
) -> str | None:
    """Return in one sentence that the schedule belonged to another declaration, or None."""
    if before is None or before.owner in (owner, BY_HAND):
        return None
    if is_dry_run:
        return f"it would belong to {owner} then; now {before.owner} declares it"
    return f"it now belongs to {owner}; before, {before.owner} declared it"
