"""How long ended jobs are kept: the form of requests and responses."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import Meta, Struct

from schedo.core.keep import KeepTimes
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration
from schedo.protocol.times import render_duration


class KeepRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How long jobs are kept after their end; 0s: not at all. Absent: the next level says it."""

    completed: Duration | None = None
    failed: Duration | None = None
    cancelled: Annotated[Duration | None, Meta(description="Also of expired jobs.")] = None

    @classmethod
    def of(cls, keep: KeepTimes) -> Self:
        return cls(_render(keep.completed_us), _render(keep.failed_us), _render(keep.cancelled_us))


def read_keep(pointer: str, value: KeepRequest | None) -> KeepTimes | None:
    """Return the core's form, or None if it was not given."""
    if value is None:
        return None
    if value == KeepRequest():
        raise Invalid.field(pointer, "give at least one of completed, failed and cancelled")
    return KeepTimes(
        fields.read_duration_or_none(f"{pointer}/completed", value.completed),
        fields.read_duration_or_none(f"{pointer}/failed", value.failed),
        fields.read_duration_or_none(f"{pointer}/cancelled", value.cancelled),
    )


def show_keep(keep: KeepTimes) -> dict[str, str]:
    """Return the fields that are set, as plain JSON data."""
    times = {
        "completed": keep.completed_us,
        "failed": keep.failed_us,
        "cancelled": keep.cancelled_us,
    }
    return {name: render_duration(us) for name, us in times.items() if us is not None}


def _render(us: int | None) -> str | None:
    return None if us is None else render_duration(us)
