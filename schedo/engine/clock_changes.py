"""What happens when somebody sets the wall clock.

Durations count elapsed time and calendars follow the wall clock (docs/adr/0012). The two
differ by the offset. When the clock is set, the store takes the new offset, one small commit
however many jobs wait, and then memory shifts what counts elapsed time, in one step and between two
rounds of the journal, so that nothing is on its way to or from the store. Until then `now` goes on
by the old clock, and what is not yet due waits.

The store also remembers the clock itself: how far it is ahead of the time since the machine
started. So a new server knows by how much the clock was set while there was none. If the machine
has started anew, only a clock that stands before the newest instant in the store shows that it was
set back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from schedo.clock import STEP_MIN_US, Clock
from schedo.core.ids import newest_at
from schedo.core.limits import SECOND
from schedo.core.scheduler import Scheduler
from schedo.engine.health import LoopMonitor
from schedo.store.base import NO_MARK, ClockMark, Snapshot, Store

log = logging.getLogger("schedo.engine")


class ClockChanges:
    """Keeps the offset of one store."""

    def __init__(self, store: Store, monitor: LoopMonitor, shift: Callable[[int], None]) -> None:
        """shift: moves by so much what counts elapsed time in memory."""
        self.monitor = monitor
        self._store = store
        self._clock = monitor.clock
        self._shift = shift
        self._mark = NO_MARK

    async def began(self, snapshot: Snapshot) -> Snapshot:
        """Follow the clock from where the store saw it last; return what holds now."""
        clock = self._clock
        self._jump(clock.step_us())
        self._mark = snapshot.clock
        step_us = self._missed_step()
        if step_us:
            say(step_us, " since the store was used last")
        if step_us or self._mark.boot != clock.boot:
            await self._save(self._mark.offset_us + step_us)
        return replace(snapshot, clock=self._mark)

    async def follow(self) -> None:
        """If the clock was set, let the store, `now` and memory follow; raise StoreError."""
        step_us = self._clock.step_us()
        if step_us:
            await self._save(self._mark.offset_us + step_us, step_us)
            self._jump(step_us)
            self._shift(step_us)
            say(step_us)

    def _jump(self, step_us: int) -> None:
        self._clock.follow(step_us)
        self.monitor.clock_stepped(step_us)

    def _missed_step(self) -> int:
        clock, mark = self._clock, self._mark
        if mark.boot == clock.boot:
            step_us = clock.base_us - mark.base_us
        else:
            step_us = min(0, clock.now() - mark.offset_us - mark.seen_at)
        return step_us if abs(step_us) >= STEP_MIN_US else 0

    async def _save(self, offset_us: int, step_us: int = 0) -> None:
        clock = self._clock
        now = clock.now() + step_us
        mark = ClockMark(offset_us, clock.base_us + step_us, clock.boot, now - offset_us)
        await self._store.save_clock(mark)
        self._mark = mark


def tick(scheduler: Scheduler, clock: Clock, now: int) -> int | None:
    """Do what is due and start what is ready; return when the next timer is due.

    While the clock has been set and the store does not know it yet, `now` still follows the old
    clock: jobs and schedules wait until they have been shifted, so that nothing comes due by it.
    Timeouts count elapsed time, for which the old clock is right.
    """
    if clock.step_us():
        scheduler.tick_attempts(now)
        return scheduler.attempts.next_timeout_at()
    scheduler.tick(now)
    return scheduler.next_wake_at()


def behind_us(scheduler: Scheduler | None, clock: Clock) -> int:
    """Return how far the clock is behind the newest instant at which something was made.

    So long nothing that follows the wall clock is due again. Below half a second is 0.
    """
    behind = 0 if scheduler is None else newest_at(scheduler.last_id) - clock.now()
    return behind if behind >= STEP_MIN_US else 0


def say(step_us: int, since: str = "") -> None:
    """Tell the log that the clock was set."""
    log.warning(
        "the clock was set %+.3f s%s; what counts elapsed time goes on as before, cron and other"
        " calendar times follow the clock",
        step_us / SECOND,
        since,
    )
