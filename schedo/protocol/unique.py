"""Unique keys: at most one job holds a key."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from schedo.core import limits
from schedo.core.model import Unique
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration, Text

UnfinishedState = Literal["scheduled", "blocked", "queued", "running", "retrying"]


class UniqueRequest(
    Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"lasts": "for"}
):
    """At most one job holds a key: while it is in these states, or for this long."""

    key: Text
    states: Annotated[list[UnfinishedState], Meta(min_length=1, max_length=5)] | None = (
        msgspec.field(default=None, name="while")
    )
    lasts: Duration | None = None
    on_conflict: Literal["return", "reject", "replace"] = "return"

    def to_unique(self) -> Unique:
        """Return the core's form."""
        _check("/unique/key", self.key)
        for_us = fields.read_duration_or_none("/unique/for", self.lasts, limits.MILLISECOND)
        if self.states is None:
            return Unique(self.key, for_us=for_us, on_conflict=self.on_conflict)
        return Unique(self.key, tuple(dict.fromkeys(self.states)), for_us, self.on_conflict)


def read_unique(value: UniqueRequest | str) -> Unique:
    """Return the core's form of a key alone or with its rules."""
    if isinstance(value, UniqueRequest):
        return value.to_unique()
    if not 1 <= len(value) <= limits.UNIQUE_KEY_CHARACTERS_MAX:
        most = limits.UNIQUE_KEY_CHARACTERS_MAX
        raise Invalid.field("/unique", f"a unique key has 1 to {most} characters")
    _check("/unique", value)
    return Unique(value)


def _check(pointer: str, key: str) -> None:
    """Raise Invalid for a key that PostgreSQL cannot keep; an application may give one."""
    if "\0" in key:
        raise Invalid.field(pointer, "the character U+0000 is not allowed")
