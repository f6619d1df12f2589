"""The queue of the engine's loop: commands and results wait in it for the next turn.

A caller of a command awaits its reply. When the engine has failed, callers get the failure instead.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any, TypeVar

import msgspec

from schedo.core.commands import Command, Flush
from schedo.core.leases import AttemptResult
from schedo.core.worker_messages import Progress
from schedo.engine.channel import Channel
from schedo.engine.effects import note_effect
from schedo.errors import SchedoError, Unavailable

R = TypeVar("R")
T = TypeVar("T")
INBOX_MAX = 100_000
BURST_S = 0.001  # between two turns that come at once


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


class CommandQueue:
    """Commands and results in the order of their arrival; the first one schedules a turn."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()  # from here on, workers may attach
        # The context of no request: what a turn starts must not act as the author of the
        # request that woke it.
        self._context = copy_context()
        self._is_turn_due = False
        self._taken_at_s = -math.inf  # the last turn that came at once, by the event loop
        self._must_decide = False  # the next turn: not only attempts have ended
        self._inbox = Channel[QueuedCommand | AttemptResult](self._wake_for_items, INBOX_MAX)
        # Applies the result of an attempt in the next turn.
        self.report: Callable[[AttemptResult], None] = self._inbox.send
        self.failure: SchedoError | None = Unavailable("the server is starting")
        # Of a server that shares its store: why it cannot carry out a command now, or None.
        self.find_refusal: Callable[[object], SchedoError | None] | None = None
        self._has_late_items = asyncio.Event()  # something has come that no turn applies
        self._late_progress: list[Progress] = []
        self._held_back: list[QueuedCommand] = []  # until the engine has recovered

    def try_enqueue(
        self, command: Command[R], finish: Callable[[R], T] = as_is
    ) -> asyncio.Future[T]:
        """Apply the command in the next turn; raise if the engine has failed or the queue is full.

        The reply comes once all changes made so far are durable, or fails with a SchedoError.
        """
        if self.failure is not None:
            raise self.failure
        if self.find_refusal is not None and (refusal := self.find_refusal(command)):
            raise refusal
        reply: asyncio.Future[T] = self.loop.create_future()
        self._inbox.try_send(QueuedCommand(command, reply, finish))
        note_effect()
        return reply

    def send(self, command: Command[None]) -> None:
        """Apply the command in the next turn, without a reply; raise as try_enqueue does."""
        if self.failure is not None:
            raise self.failure
        self._inbox.try_send(QueuedCommand(command, None, as_is))
        note_effect()

    def enqueue(self, command: Command[R], finish: Callable[[R], object] = as_is) -> None:
        """Apply the command in the next turn; if the store has failed, after the recovery."""
        self._inbox.send(QueuedCommand(command, None, finish))

    async def flush(self) -> None:
        """Return once all commands queued so far have run and all changes are durable."""
        await self.try_enqueue(Flush())

    def wake(self) -> None:
        """Schedule a turn unless there is one already."""
        self._must_decide = True
        self._wake_for_items()

    def _wake_for_items(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self.loop.call_soon(self._run_turn, context=self._context)

    def take_turn(self) -> None:
        """Take the turn that is due in the next pass of the event loop now, unless one just was.

        What comes in a burst shares the turn of the next pass. Nothing within a turn calls this.
        """
        now_s = self.loop.time()
        if self._is_turn_due and now_s - self._taken_at_s >= BURST_S:
            self._taken_at_s = now_s
            self._context.run(self._turn)

    def _run_turn(self) -> None:
        if self._is_turn_due:  # else another turn has come before
            self._turn()

    async def take_late(self) -> list[QueuedCommand | AttemptResult | Progress]:
        """Wait for what comes while the engine is frozen, and return it: progress first."""
        await self._has_late_items.wait()
        self._has_late_items.clear()
        progress, self._late_progress = self._late_progress, []
        return [*progress, *self._inbox.drain()]

    def _note_late(self, progress: Progress) -> None:
        self._late_progress.append(progress)
        self._has_late_items.set()

    def _turn(self) -> None:
        """Apply what waits, and decide what is due."""
        raise NotImplementedError

    def _hold_back_commands(self) -> list[AttemptResult]:
        """Return the results that have come; keep the commands until _put_back()."""
        items = self._inbox.drain()
        self._held_back += [item for item in items if isinstance(item, QueuedCommand)]
        return [item for item in items if isinstance(item, AttemptResult)]

    def _put_back(self, results: Iterable[AttemptResult]) -> None:
        """Let the next turn apply the results and commands that came during a recovery.

        The results come first: after the command that detaches a worker, the scheduler would refuse
        the results of that worker as stale.
        """
        commands, self._held_back = self._held_back, []
        self._inbox.put_back([*results, *commands])

    def refuse_queued_if(self, is_refused: Callable[[object], bool], error: SchedoError) -> None:
        """Refuse those of the queued commands whose callers wait for a reply."""

        def keeps(queued: QueuedCommand) -> bool:
            if queued.reply is None or not is_refused(queued.command):
                return True
            refuse(queued.reply, error)
            return False

        self.keep_queued(keeps)

    def keep_queued(self, keeps: Callable[[QueuedCommand], bool]) -> None:
        """Drop the other commands that wait, here or for the recovery; keep all results."""
        self._held_back = [queued for queued in self._held_back if keeps(queued)]
        items = self._inbox.drain()
        self._inbox.put_back([i for i in items if not isinstance(i, QueuedCommand) or keeps(i)])

    def _refuse_queued(self, error: SchedoError) -> None:
        """Refuse all queued commands whose callers wait for a reply."""
        self.refuse_queued_if(lambda _: True, error)
