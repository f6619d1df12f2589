"""Whether the engine keeps time: how late its turns are, and how long the store has been silent.

Turns and the journal note here what happens, one call an event. What follows is decided when
somebody asks, so that a stuck commit is seen although nothing happens any more. All instants are
the clock's, in microseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set

from schedo.clock import Clock
from schedo.core.changes import Changes
from schedo.core.job_table import JobTable
from schedo.core.leases import Lease
from schedo.core.limits import SECOND, TURN_COMMANDS_US
from schedo.core.scheduler import Scheduler
from schedo.engine.metrics import Metrics
from schedo.errors import SchedoError

log = logging.getLogger("schedo.engine")

LAG_MAX_US = SECOND
LATE_SHOWN_US = 5 * SECOND  # so that a probe every few seconds sees that the loop was late
SILENCE_MAX_US = 5 * SECOND
BACKLOG_AGE_MAX_US = 5 * SECOND
_NEVER = 1 << 62


class LoopMonitor:
    """The instants that matter, and the worst lag of the last seconds."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self.clock = clock
        self.metrics = metrics
        self._turn_due_at = _NEVER
        self._round_began_at: int | None = None
        self._late_at = -_NEVER
        self._late_us = 0
        self._worst_us = 0  # since the last rotate
        self._worst_before_us = 0  # between the last two
        self.others: list[Callable[[], list[str]]] = []  # who also know reasons

    # Turns.

    def expect_turn(self, at: int | None, now: int) -> None:
        """Note when the next turn is due: at the instant, at once if it has passed, or never."""
        self._turn_due_at = _NEVER if at is None else max(at, now)

    def failed(self, error: SchedoError, before: SchedoError | None) -> None:
        """Note that there is no turn until the store is back, which is no lateness of the loop."""
        self._turn_due_at = _NEVER
        if str(error) != str(before):  # it is tried again each second, but said once
            log.error("the store failed: %s", error)

    def turn_began(self, now: int) -> None:
        """Note a turn; if it was due, it has a lag."""
        if now >= self._turn_due_at:
            lag_us = now - self._turn_due_at
            self.metrics.loop_lag.observe(lag_us)
            self.note_lag(lag_us, now)

    def started(self, leases: Sequence[Lease], memory: JobTable, ready: Set[int], now: int) -> None:
        """Note which attempts the turn has handed out; `ready` had nothing to wait for."""
        if leases:
            self.metrics.note_starts(leases, memory, ready, now)

    def started_once(self, leases: Sequence[Lease], memory: JobTable) -> None:
        """Note attempts that run at most once, handed out when their start was durable."""
        if leases:
            self.metrics.note_starts(leases, memory, frozenset(), self.clock.now(), once=True)

    def is_turn_long(self, began_at: int) -> bool:
        """Say whether a turn has taken so long that the commands left should wait for another."""
        return self.clock.now() - began_at > TURN_COMMANDS_US

    def note_lag(self, lag_us: int, now: int) -> None:
        """Note how late something in the loop ran."""
        if lag_us > self._worst_us:
            self._worst_us = lag_us
        if lag_us > LAG_MAX_US:
            self._late_us, self._late_at = lag_us, now

    def rotate(self) -> None:
        """Forget the lags before the last call; called about once a second."""
        self._worst_before_us, self._worst_us = self._worst_us, 0

    @property
    def lag_us(self) -> int:
        """The worst lag of the last second or two."""
        return max(self._worst_us, self._worst_before_us)

    # Rounds of the journal.

    def round_began(self) -> None:
        """Note that the store is asked for something."""
        self._round_began_at = self.clock.now()

    def committed(self, changes: Changes) -> None:
        """Note that the round's changes are durable."""
        assert self._round_began_at is not None, "a commit is part of a round"
        self.metrics.note_commit(changes, self.clock.now() - self._round_began_at)

    def round_ended(self) -> None:
        """Note that the store has answered."""
        self._round_began_at = None

    # Conclusions.

    def clock_stepped(self, delta_us: int) -> None:
        """Move what was noted along with the clock: a step is no lateness."""
        self._turn_due_at += delta_us
        self._late_at += delta_us
        self.metrics.began_at += delta_us
        if self._round_began_at is not None:
            self._round_began_at += delta_us

    def not_ready_reasons(self, now: int, scheduler: Scheduler | None = None) -> list[str]:
        """Return in sentences why jobs would not start in time."""
        reasons = []
        overdue_us = now - self._turn_due_at
        if overdue_us > LAG_MAX_US:
            reasons.append(f"the timer loop is {overdue_us / SECOND:.1f} s overdue")
        elif now - self._late_at < LATE_SHOWN_US:
            reasons.append(f"the timer loop was {self._late_us / SECOND:.1f} s late just now")
        if self._round_began_at is not None:
            silent_us = now - self._round_began_at
            if silent_us > SILENCE_MAX_US:
                reasons.append(f"the store has not answered for {silent_us / SECOND:.1f} s")
        if scheduler is not None and not reasons:
            reasons = _find_waits(scheduler, self.metrics.began_at, now)
        for find in self.others:
            reasons += find()
        return reasons


def _find_waits(scheduler: Scheduler, began_at: int, now: int) -> list[str]:
    """Return in sentences what is due and waits for this server alone.

    What was due before the server began is no fault of it, as long as it delays nothing else.
    """
    reasons = []
    memory, order = scheduler.jobs, scheduler.schedules.order
    timer = memory.timers.first()
    for what, due_at in (("jobs", timer and timer[0]), ("schedules", order.fresh_at())):
        if due_at is not None and now - max(due_at, began_at) > LAG_MAX_US:
            waited_s = (now - max(due_at, began_at)) / SECOND
            reasons.append(f"{what} that are due have waited for {waited_s:.1f} s")
    for what, backlog in (("jobs", memory.backlog), ("schedules", order.backlog)):
        age_us = backlog.age_us(now)
        if age_us > BACKLOG_AGE_MAX_US and now - age_us >= began_at:
            reasons.append(f"a backlog of {what} has been due for {age_us / SECOND:.1f} s")
    return reasons


class ReadinessLog:
    """Says in the log when reasons against readiness appear, and when they have gone."""

    def __init__(self) -> None:
        self._is_ready = True

    def note(self, reasons: list[str]) -> None:
        """Take in the reasons there are now."""
        if reasons and self._is_ready:
            log.warning("not ready: %s", "; ".join(reasons))
        elif not reasons and not self._is_ready:
            log.info("ready again")
        self._is_ready = not reasons
