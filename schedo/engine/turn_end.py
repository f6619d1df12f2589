"""The end of a turn: the alarm for the next one, the notes, and the committer.

Nothing waits for it. So with few starts it comes behind the first steps of their handlers and the
results of those that have ended by then, and with few responses to polls behind those
(docs/adr/0065).
"""

from __future__ import annotations

from collections.abc import Sequence

from schedo.core.outcomes import FailedAttempt
from schedo.core.scheduler import Scheduler
from schedo.engine.clock_changes import next_wake_at
from schedo.engine.standstill import Standstill
from schedo.engine.waiters import EndWaiters

FEW_STARTS = 8  # with more of them, or of responses to polls, a turn ends before they are out


class TurnEnd(Standstill):
    """The part of the engine's loop that ends a turn."""

    waiters: EndWaiters

    def __init__(self) -> None:
        super().__init__()
        # Of a turn that has not ended: its instant, the step of the clock, whether only attempts
        # have ended in it.
        self._rest: tuple[int, int, bool] | None = None
        self._must_arm = False  # the alarm is not set for what was decided last

    def _follow_starts(self) -> None:
        """End a turn whose handlers have begun; the results of those that have ended go first."""
        if self._rest is not None and self._is_turn_due and self._is_open:
            self._turn()
            return
        try:
            self._end_turn()
        except Exception as error:
            self.fail_and_recover(error)

    def _end_turn(self) -> None:
        """Set the alarm if something was decided, take the notes, and wake the committer.

        Unless the turn has ended already, or the engine has failed since.
        """
        if self._rest is None or not self._is_open:
            return
        (now, step_us, has_ended), self._rest = self._rest, None
        scheduler = self.scheduler
        if self._must_arm:
            self._must_arm = False
            at = next_wake_at(scheduler, step_us)
            self.monitor.expect_turn(at, now)
            if at is not None and at <= now:
                self.wake()
            else:
                self.clock.arm(at)
        self.notes.take(scheduler, now)
        self.notes.decisions.release()
        self._wake_committer(scheduler, has_ended=has_ended)
        if self.notes.has_unlogged:
            self.loop.call_soon(self.notes.log_failed)  # after the leases have gone to the workers

    def _note_refused(self, refused: Sequence[FailedAttempt]) -> None:
        """Log the jobs of SQL clients that are durable as refused ones."""
        self.notes.note_failed(refused, self.clock.now())
        self.loop.call_soon(self.notes.log_failed)

    def _wake_committer(self, scheduler: Scheduler, *, has_ended: bool) -> None:
        """Commit now what something waits for, and starts and ends a moment later."""
        if (
            self._unanswered
            or scheduler.awaits_commit
            or scheduler.awaits_load
            or self.waiters.has_ended(scheduler.uncommitted, scheduler.find_job)
        ):
            self._committer.wake()
        elif scheduler.has_changes:
            self._committer.wake_later(has_ended=has_ended)
