"""The commands that pause and resume the whole server, and that pause a queue, as values."""

from __future__ import annotations

from collections.abc import Sequence

from schedo.core.commands import Command
from schedo.core.model import Pause, PauseScope, Queue


class PauseServer(Command[list[Pause]], frozen=True):
    """Pause what the scopes say, in place of their earlier pauses; the reply has all pauses."""

    scopes: Sequence[PauseScope]
    note: str | None = None
    until: int | None = None  # then the pause ends by itself


class ResumeServer(Command[list[Pause]], frozen=True):
    """End the pauses of these scopes, if there are any; the reply has those that are left."""

    scopes: Sequence[PauseScope]


class PauseQueue(Command[Queue], frozen=True):
    """Start no jobs of the queue until it is resumed, or until an instant."""

    name: str
    note: str | None = None
    until: int | None = None
