"""Changes of the wall clock: the engine follows them without shifting durations.

Durations count elapsed time and calendars follow the wall clock (docs/adr/0012). The two timelines
differ by the offset. When the clock is set, the store saves the new offset, in one small commit
however many jobs wait. Then memory shifts all instants that count elapsed time, in one step and
between two rounds of the committer, so that no record is on its way to or from the store. Until
then `now` follows the old clock, and no job becomes due by the change.

The store also keeps how far the clock is ahead of the time since the machine started. So a new
server knows by how much the clock was set while no server ran. After a restart of the machine this
is unknown. Then only a clock that is behind the newest instant in the store shows that it was set
back.

A clock that drifts is no step, however far it gets in a month. So the store gets to know how far it
is ahead before that could look like a step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from schedo.clock import DRIFT_US, STEP_MIN_US, Clock
from schedo.core.ids import newest_at
from schedo.core.limits import SECOND
from schedo.core.scheduler import Scheduler
from schedo.engine.health import LoopMonitor
from schedo.store.base import NO_MARK, ClockMark, Snapshot, Store

log = logging.getLogger("schedo.engine")


class ClockChanges:
    """Keeps the offset of one store up to date."""

    def __init__(self, store: Store, monitor: LoopMonitor, shift: Callable[[int], None]) -> None:
        """shift: moves the instants in memory that count elapsed time, by microseconds."""
        self.monitor = monitor
        self._store = store
        self._clock = monitor.clock
        self._shift = shift
        self._mark = NO_MARK

    async def began(self, snapshot: Snapshot) -> Snapshot:
        """Apply changes of the clock since the store was used last; return the new snapshot."""
        clock = self._clock
        self._jump(clock.step_us())
        self._mark = snapshot.clock
        step_us = self._missed_step()
        if step_us:
            log_step(step_us, " since the store was used last")
            for expectation in snapshot.expectations:
                expectation.shift(step_us)
        if step_us or self._mark.boot != clock.boot:
            await self._save(self._mark.offset_us + step_us)
        running = None if step_us else snapshot.running  # their instants move with the clock
        return replace(snapshot, clock=self._mark, running=running)

    async def follow(self) -> None:
        """If the clock was set, update the store, `now` and memory; raise StoreError."""
        step_us = self._clock.step_us()
        if step_us:
            await self._save(self._mark.offset_us + step_us, step_us)
            self._jump(step_us)
            self._shift(step_us)
            log_step(step_us)
        elif abs(self._clock.base_us - self._mark.base_us) >= DRIFT_US:
            await self._save(self._mark.offset_us)

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
        at = clock.now() + step_us - offset_us
        set_at = self._mark.set_at if offset_us == self._mark.offset_us else at
        mark = ClockMark(offset_us, clock.base_us + step_us, clock.boot, at, set_at)
        await self._store.save_clock(mark)
        self._mark = mark


def tick(scheduler: Scheduler, now: int, step_us: int) -> None:
    """Handle what is due and start ready jobs.

    After a change of the clock, `now` follows the old clock until the store has saved the change.
    Jobs and schedules wait until then, so that none becomes due before it is shifted. Timeouts
    count elapsed time, for which the old clock is right.
    """
    if step_us:
        scheduler.tick_attempts(now)
    else:
        scheduler.tick(now)


def next_wake_at(scheduler: Scheduler, step_us: int) -> int | None:
    """Return the next instant at which `tick` has something to do, or None."""
    return scheduler.next_timeout_at() if step_us else scheduler.next_wake_at()


def behind_us(scheduler: Scheduler | None, clock: Clock) -> int:
    """Return by how many microseconds the clock is behind the newest creation instant.

    For this long no cron schedule fires again. Less than half a second counts as 0.
    """
    behind = 0 if scheduler is None else newest_at(scheduler.last_id) - clock.now()
    return behind if behind >= STEP_MIN_US else 0


def log_step(step_us: int, since: str = "") -> None:
    """Log that the clock was set."""
    log.warning(
        "the clock was set %+.3f s%s; delays and timeouts continue as before, cron and other"
        " calendar times follow the clock",
        step_us / SECOND,
        since,
    )
