"""The monitor of the engine's punctuality: late turns, and a store that does not respond.

The engine loop and the committer note each event with one call. Reasons against readiness are
computed at each query, so that a stuck commit is visible although no event follows it. All
instants are the clock's, in microseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

from schedo.clock import Clock
from schedo.core.changes import Changes
from schedo.core.leases import Lease
from schedo.core.limits import SECOND, TURN_COMMANDS_US
from schedo.core.scheduler import Scheduler
from schedo.engine.commit_times import CommitTimes
from schedo.engine.ends import Ends
from schedo.engine.metrics import Metrics
from schedo.errors import SchedoError

if TYPE_CHECKING:
    from schedo.engine.observing import Observer

log = logging.getLogger("schedo.engine")

LAG_MAX_US = SECOND
LATE_SHOWN_US = 5 * SECOND  # so that a probe every few seconds sees a late loop
SWEEPS_SHOWN = 5  # as long, because a sweep comes once a second
SILENCE_MAX_US = 5 * SECOND
BACKLOG_AGE_MAX_US = 5 * SECOND
_NEVER = 1 << 62


class LoopMonitor:
    """The instants of the last turn and commit, and the worst lag of the last seconds."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self.clock = clock
        self.metrics = metrics
        self.commits = CommitTimes()
        self.observer: Observer | None = None
        self.ends = Ends(metrics.ended)
        self._turn_due_at = _NEVER
        self._round_began_at: int | None = None
        self._late_at = -_NEVER
        self._late_us = 0
        self._sweeps_shown = 0  # for how many sweeps more the lag of one makes the server unready
        self._worst_us = 0  # since the last sweep
        self._worst_before_us = 0  # between the last two
        self.checks: list[Callable[[], list[str]]] = []  # of other parts of the server

    def use_store(self, store_id: int, last_id: int) -> None:
        """Note the number of the store that was opened, and the largest id in it."""
        self.commits.begin(last_id)
        if self.observer is not None:
            self.observer.use_store(store_id)

    # Turns.

    def mark(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return the leases as the workers get them."""
        return leases if self.observer is None else self.observer.mark(leases)

    def expect_turn(self, at: int | None, now: int) -> None:
        """Note when the next turn is due: at the instant, at once if it has passed, or never."""
        self._turn_due_at = _NEVER if at is None else max(at, now)

    def failed(self, error: SchedoError, before: SchedoError | None) -> None:
        """Note a failure: until the recovery there are no turns, and none counts as late."""
        self._turn_due_at = _NEVER
        if str(error) != str(before):  # the store is retried every second, but logged once
            log.error("the store failed: %s", error)

    def turn_began(self, now: int) -> None:
        """Note a turn, and its lag if it was due."""
        if now >= self._turn_due_at:
            lag_us = now - self._turn_due_at
            self.metrics.loop_lag.observe(lag_us)
            if lag_us > self._worst_us:
                self._worst_us = lag_us
            if lag_us > LAG_MAX_US:
                self._late_us, self._late_at = lag_us, now

    def started(self, leases: Sequence[Lease], scheduler: Scheduler, ready: Set[int]) -> None:
        """Note the attempts that the turn dispatched; `ready`: jobs that found a slot at once."""
        if leases:
            self.metrics.note_starts(leases, scheduler, ready, self.clock.now())

    def is_turn_due(self, now: int) -> bool:
        """Whether the instant of the next turn has come."""
        return now >= self._turn_due_at

    def is_turn_long(self, began_at: int) -> bool:
        """Whether a turn has taken so long that the remaining commands wait for the next one."""
        return self.clock.now() - began_at > TURN_COMMANDS_US

    def swept(self, lag_us: int) -> None:
        """Note a sweep of the maintenance, once a second, and how late it was.

        It is late by the time of the loop. The clock may be one of a test, which stands still, so
        sweeps are counted instead.
        """
        self._worst_before_us, self._worst_us = self._worst_us, lag_us
        self._sweeps_shown = max(0, self._sweeps_shown - 1)
        if lag_us > LAG_MAX_US:
            self._late_us, self._sweeps_shown = lag_us, SWEEPS_SHOWN

    @property
    def lag_us(self) -> int:
        """The worst lag of the last second or two."""
        return max(self._worst_us, self._worst_before_us)

    # Rounds of the committer.

    def round_began(self) -> None:
        """Note that the committer begins to use the store."""
        self._round_began_at = self.clock.now()

    def committed(self, changes: Changes, last_id: int) -> None:
        """Note that the round's changes are durable, and so are all jobs up to the last id."""
        assert self._round_began_at is not None, "a commit is part of a round"
        now = self.clock.now()
        self.metrics.note_commit(changes, now - self._round_began_at)
        self.commits.note(last_id, now)
        self.ends.note(changes)

    def round_ended(self) -> None:
        """Note that the store has responded."""
        self._round_began_at = None

    # Readiness.

    def clock_stepped(self, delta_us: int) -> None:
        """Shift the noted instants by a step of the clock, which would count as lateness."""
        self._turn_due_at += delta_us
        self._late_at += delta_us
        self.metrics.clock_steps += bool(delta_us)
        self.metrics.began_at += delta_us
        if self._round_began_at is not None:
            self._round_began_at += delta_us

    def not_ready_reasons(self, now: int, scheduler: Scheduler | None = None) -> list[str]:
        """Return, as sentences, why jobs would not start in time."""
        reasons = []
        overdue_us = now - self._turn_due_at
        if overdue_us > LAG_MAX_US:
            reasons.append(f"the timer loop is {overdue_us / SECOND:.1f} s overdue")
        elif self._sweeps_shown or now - self._late_at < LATE_SHOWN_US:
            reasons.append(f"the timer loop was {self._late_us / SECOND:.1f} s late just now")
        if self._round_began_at is not None:
            silent_us = now - self._round_began_at
            if silent_us > SILENCE_MAX_US:
                reasons.append(f"the store has not answered for {silent_us / SECOND:.1f} s")
        if scheduler is not None and not reasons:
            reasons = _find_waits(scheduler, self.metrics.began_at, now)
        for check in self.checks:
            reasons += check()
        return reasons


def _find_waits(scheduler: Scheduler, began_at: int, now: int) -> list[str]:
    """Return, as sentences, which due jobs and schedules wait for this server alone.

    Entries that were due before the server started do not count while they delay nothing else.
    """
    reasons = []
    delays = scheduler.delays(now)
    for what, due_at in (("jobs", delays.job_due_at), ("schedules", delays.schedule_due_at)):
        if due_at is not None and now - max(due_at, began_at) > LAG_MAX_US:
            waited_s = (now - max(due_at, began_at)) / SECOND
            reasons.append(f"{what} that are due have waited for {waited_s:.1f} s")
    ages = (("jobs", delays.jobs_backlog_us), ("schedules", delays.schedules_backlog_us))
    for what, age_us in ages:
        if age_us > BACKLOG_AGE_MAX_US and now - age_us >= began_at:
            reasons.append(f"a backlog of {what} has been due for {age_us / SECOND:.1f} s")
    return reasons


class ReadinessLog:
    """Logs when reasons against readiness appear and when the last one disappears."""

    def __init__(self) -> None:
        self._is_ready = True

    def note(self, reasons: list[str]) -> None:
        """Compare the present reasons with the previous ones, and log a change."""
        if reasons and self._is_ready:
            log.warning("not ready: %s", "; ".join(reasons))
        elif not reasons and not self._is_ready:
            log.info("ready again")
        self._is_ready = not reasons
