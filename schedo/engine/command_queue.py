"""A command that waits for its turn, and the reply that its caller awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from schedo.core.commands import Command
from schedo.errors import SchedoError


class QueuedCommand(msgspec.Struct, frozen=True):
    """A command of the scheduler. `finish` makes the caller's result from the scheduler's reply.

    It runs in the same step as the command, because the records in the reply may change later.
    """

    command: Command[Any]
    reply: asyncio.Future[Any] | None  # None: no caller waits
    finish: Callable[[Any], Any]


def refuse(reply: asyncio.Future[Any] | None, error: SchedoError) -> None:
    """Raise the error in the caller, unless none waits or it has its reply.

    The error's traceback refers to frames that refer to the reply. Without it there is no cycle,
    which would hold the caller's request until the next garbage collection.
    """
    if reply is not None and not reply.done():
        reply.set_exception(error.with_traceback(None))


def as_is(reply: Any) -> Any:
    """Give the caller the scheduler's reply itself."""
    return reply
