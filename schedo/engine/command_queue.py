"""What acts in a turn of the engine, and how it says that it cannot do what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from schedo.core.ids import render_id
from schedo.core.scheduler import Scheduler
from schedo.errors import NotFound, SchedoError

Command = Callable[[Scheduler, int], None]


class QueuedCommand(NamedTuple):
    """A command and whoever waits for its answer."""

    command: Command
    reply: asyncio.Future[Any]


def refuse(reply: asyncio.Future[Any], error: SchedoError) -> None:
    """Answer with an error unless the asker has gone."""
    if not reply.done():
        reply.set_exception(error)


def to_reply(
    reply: asyncio.Future[Any], then: Callable[[Any, int], None]
) -> Callable[[Any, int], None]:
    """Turn what a continuation raises on purpose into the reply."""

    def call(found: Any, now: int) -> None:
        try:
            then(found, now)
        except SchedoError as error:
            refuse(reply, error)

    return call


def no_job(job_id: int) -> NotFound:
    """Return the error for an id that no job has."""
    return NotFound(
        f"there is no job {render_id(job_id)}; ended jobs are pruned after their retention"
    )
