"""The commands of the engine's loop that have no reply yet."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.core.changes import Changes
from schedo.core.loads import Needs
from schedo.engine.command_queue import QueuedCommand, refuse
from schedo.engine.committer import Batch
from schedo.errors import SchedoError


class Unanswered:
    """Replies that wait for a commit, and commands that wait for their loads."""

    def __init__(self) -> None:
        self.replies: list[tuple[asyncio.Future[Any], Any]] = []  # for the next commit
        self.unloaded: list[tuple[QueuedCommand, Needs]] = []  # their loads are not under way
        self.batch = Batch(Changes())  # the one that the committer has taken last

    def __bool__(self) -> bool:
        """Whether something waits for the next round of the committer."""
        return bool(self.replies or self.unloaded)

    def move_to(self, batch: Batch) -> None:
        """Put what waits, and its loads, into the batch that the committer takes."""
        self.batch = batch
        batch.replies, self.replies = self.replies, []
        batch.unloaded, self.unloaded = self.unloaded, []
        needed = [load for _, needs in batch.unloaded for load in needs.loads]
        batch.loads += dict.fromkeys(needed)

    def fail(self, error: SchedoError) -> None:
        """Fail the replies to commands whose changes are not durable: the scheduler is dropped."""
        self.refuse(error)
        self.unloaded, self.batch = [], Batch(Changes())

    def refuse(self, error: SchedoError) -> None:
        """Fail the replies, and drop the commands that have only waited for their loads.

        Those without a reply stay: the scheduler goes on, and a poll gets its response from it.
        """
        for reply, _ in (*self.replies, *self.batch.replies):
            refuse(reply, error)
        self.replies = []
        for waiting in (self.unloaded, self.batch.unloaded):
            for queued, _ in waiting:
                refuse(queued.reply, error)
            waiting[:] = [each for each in waiting if each[0].reply is None]
