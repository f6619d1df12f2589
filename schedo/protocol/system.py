"""The answers about the server itself."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class HealthAnswer(Struct, forbid_unknown_fields=True):
    """The process is alive."""

    status: Literal["ok"]


class ReadyAnswer(Struct, forbid_unknown_fields=True):
    """The readiness of the server, the reasons if it is not ready, and further notes."""

    ready: bool
    reasons: list[str]
    notes: list[str] | UnsetType = UNSET


class InfoAnswer(Struct, forbid_unknown_fields=True):
    """Versions and limits."""

    version: str
    python: str
    sqlite: str
    tzdata: str
    shell: bool
    limits: dict[str, int]
