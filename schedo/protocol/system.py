"""The responses about the server itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from msgspec import UNSET, Struct, UnsetType, field

from schedo.core.lateness import TARGET
from schedo.core.limits import SECOND
from schedo.core.model import Pause, PauseScope
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration, Instant
from schedo.protocol.schedules import Note
from schedo.protocol.times import render_instant


class HealthResponse(Struct, forbid_unknown_fields=True):
    """The process is alive."""

    status: Literal["ok"]


_SETTLE_US_MAX = 60 * SECOND
# A standby answers no request, so every server that responds is the active one.
ServerRole = Literal["active"]
ReadyCode = Literal["ready", "late", "stopping", "store-failed"]


class ReadyResponse(Struct, forbid_unknown_fields=True):
    """The readiness of the server, and why it is not ready as a code.

    Clients that may read jobs also get the server's role and epoch, the reasons as sentences, and
    further notes.
    """

    ready: bool
    code: ReadyCode
    role: ServerRole | UnsetType = UNSET
    epoch: int | UnsetType = UNSET
    reasons: list[str] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


def read_end(text: str | None, duration: str | int | float | None, now: int) -> int | None:
    """Return the end of a pause, given at `until` or after `duration`; raise Invalid."""
    if text is not None and duration is not None:
        raise Invalid.field("/until", "give either until or duration")
    until = fields.read_instant_or_none("/until", text)
    if duration is not None:
        until = now + fields.read_duration("/duration", duration, minimum_us=1)
    if until is not None and until <= now:
        raise Invalid.field("/until", "this has passed already")
    return until


class PauseServerRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A pause of the whole server; it may end by itself, at `until` or after `duration`."""

    scopes: list[PauseScope] = field(default_factory=lambda: list(PauseScope))
    note: Note | None = None
    until: Instant | None = None
    duration: Duration | None = None

    def read(self, now: int) -> tuple[list[PauseScope], str | None, int | None]:
        """Return the scopes, the note and the end; raise Invalid."""
        return _read_scopes(self.scopes), self.note, read_end(self.until, self.duration, now)


class ResumeServerRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The scopes to resume; by default both."""

    scopes: list[PauseScope] = field(default_factory=lambda: list(PauseScope))

    def read(self) -> list[PauseScope]:
        """Return the scopes, each once; raise Invalid."""
        return _read_scopes(self.scopes)


class ServerPause(Struct, forbid_unknown_fields=True):
    """A pause of the whole server, with the instant at which it ends by itself."""

    scope: PauseScope
    since: Instant
    note: str | None
    until: Instant | None

    @classmethod
    def of(cls, pause: Pause) -> Self:
        until = None if pause.until is None else render_instant(pause.until)
        return cls(pause.scope, render_instant(pause.since), pause.note, until)


class PausesResponse(Struct, forbid_unknown_fields=True):
    """All pauses of the whole server."""

    pauses: list[ServerPause]


def _read_scopes(scopes: Sequence[PauseScope]) -> list[PauseScope]:
    if not scopes:
        raise Invalid.field("/scopes", "give at least one scope")
    return list(dict.fromkeys(scopes))


class AdvanceRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A move of the test clock: by a duration, or to an instant.

    At each instant the server waits for running jobs, at most `settle` of real time.
    """

    by: Duration | None = None
    to: Instant | None = None
    settle: Duration = "5s"

    def read(self, now: int) -> tuple[int, float]:
        """Return the instant to move to, and the longest wait in seconds; raise Invalid."""
        if (self.by is None) == (self.to is None):
            raise Invalid.field("/by", "give either by or to")
        settle_us = fields.read_duration("/settle", self.settle)
        if settle_us > _SETTLE_US_MAX:
            raise Invalid.field("/settle", "it is at most 60s")
        if self.by is not None:
            return now + fields.read_duration("/by", self.by), settle_us / SECOND
        assert self.to is not None, "one of the two is given"
        return fields.read_instant("/to", self.to), settle_us / SECOND


class ClockResponse(Struct, forbid_unknown_fields=True):
    """The time of the test clock, and how many jobs still run there."""

    now: Instant
    running: int


class ObjectiveResponse(Struct, forbid_unknown_fields=True):
    """How late the share `target` of the starts may be."""

    lateness_us: int
    target: float = TARGET


class CallerResponse(Struct, forbid_unknown_fields=True):
    """The token of the request: its name and its role."""

    name: str
    role: str


class InfoResponse(Struct, forbid_unknown_fields=True):
    """Versions, limits, the server's role and epoch, and the caller's role.

    epoch: 0 while the store has failed. features: what this server may do, by its settings.
    """

    version: str
    role: ServerRole
    epoch: int
    python: str
    sqlite: str
    tzdata: str
    shell: bool
    limits: dict[str, int]
    pauses: list[ServerPause]
    now: Instant
    objective: ObjectiveResponse
    caller: CallerResponse
    features: dict[str, bool]
    test_clock: Instant | UnsetType = UNSET
