"""The commands that run in a turn of the engine, and the errors that they reply with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from schedo.core.ids import render_id
from schedo.core.scheduler import Scheduler
from schedo.errors import NotFound, SchedoError

Command = Callable[[Scheduler, int], None]


class QueuedCommand(NamedTuple):
    """A command and the reply that its caller awaits."""

    command: Command
    reply: asyncio.Future[Any]


def refuse(reply: asyncio.Future[Any], error: SchedoError) -> None:
    """Set the error unless the caller has gone or has a reply."""
    if not reply.done():
        reply.set_exception(error)


def to_reply(
    reply: asyncio.Future[Any], then: Callable[[Any, int], None]
) -> Callable[[Any, int], None]:
    """Return a callback that calls `then` and replies with the SchedoError that it raises."""

    def call_then(found: Any, now: int) -> None:
        try:
            then(found, now)
        except SchedoError as error:
            refuse(reply, error)

    return call_then


def no_job(job_id: int) -> NotFound:
    """Return the error for an id without a job."""
    return NotFound(
        f"there is no job {render_id(job_id)}; ended jobs are pruned after their retention"
    )
