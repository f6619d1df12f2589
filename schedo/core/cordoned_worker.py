"""The record of a cordon; see cordons.py for what it does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CordonedWorker:
    """A remote worker that gets no new work until an operator says so; since: an instant."""

    name: str
    since: int
