"""The log of what people and programs changed by hand: who, when, from where, what."""

from __future__ import annotations

from typing import NamedTuple


class LogEntry(NamedTuple):
    """One change, as one request made it."""

    at: int
    who: str  # the name of the token; "local" on a server without tokens
    via: str  # page, cli or api
    address: str  # of the client, as the server saw it; empty if unknown
    action: str  # the name of the operation in the API document
    target: str  # what it changed: its address below /v1/, such as jobs/0CR728XJV2WG0
    answer: str  # what became of it, in a word or two
    changed: int | None  # how many things it changed, if that may be more than one
    is_job: bool  # it changed a single job


class LogFilter(NamedTuple):
    """Which entries to list; None means any."""

    who: str | None = None
    action: str | None = None
    target: str | None = None
    before: int | None = None  # only those before this instant


class NumberedEntry(NamedTuple):
    """An entry with its number in the store; later entries have larger ones."""

    number: int
    entry: LogEntry
