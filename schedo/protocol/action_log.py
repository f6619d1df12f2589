"""The log of changes by hand."""

from __future__ import annotations

from typing import Literal, Self

from msgspec import UNSET, Struct, UnsetType

from schedo.core.action_log import LogEntry
from schedo.protocol.fields import Instant, or_unset
from schedo.protocol.operation import Operation
from schedo.protocol.times import render_instant


class LogEntryResponse(Struct, forbid_unknown_fields=True):
    """A change: when, who, from where, which operation, of what, and what became of it.

    target: the address below /v1/. count: how many things changed, if that may be more than one.
    Viewers get no address of clients.
    """

    at: Instant
    who: str
    via: Literal["page", "cli", "api"]
    action: str
    target: str
    answer: str
    count: int | UnsetType = UNSET
    address: str | UnsetType = UNSET

    @classmethod
    def of(cls, entry: LogEntry, *, has_address: bool) -> Self:
        return cls(
            render_instant(entry.at),
            entry.who,
            entry.via,  # type: ignore[arg-type]
            entry.action,
            entry.target,
            entry.answer,
            or_unset(entry.changed),
            entry.address if has_address else UNSET,
        )


class LogPage(Struct, forbid_unknown_fields=True):
    """A page of the log, newest first; without next_cursor it is the last."""

    items: list[LogEntryResponse]
    next_cursor: str | UnsetType = UNSET


OPERATIONS = (
    Operation(
        "list_log",
        "GET /v1/log",
        "List who changed what by hand, newest first.",
        {200: LogPage},
        query=("who", "action", "target", "before", "limit", "cursor"),
    ),
)
