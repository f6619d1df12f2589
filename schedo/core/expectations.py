"""Expectations: whether the runs of a schedule, or the beats of work outside, come in time.

Each expectation is in one of two states. It becomes `missed` when a limit passes, and `ok` again
with the next completed run, or the next beat. The functions here are pure: they change one record.

A schedule's expectation follows the instants of the rule itself, not what the schedule does at
them. So it does not matter why a run is missing: the schedule is paused, the run was skipped, has
failed, waits for a worker, or no server was there. An instant is settled when a run of it has
completed, or when its limit has passed. `through` is the watermark of settled instants; `early` has
the instants after it whose runs have completed while an earlier instant is still open.

A named expectation follows its beats: after each beat it waits for the next instant of a cron rule,
or for one interval. `through` is then the last beat.

Limits count elapsed time. When the wall clock is set, the instants of an interval move with it, and
the limits of cron instants that have come already are prolonged by `lag_us`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from schedo.core.limits import EARLY_RUNS_KEPT
from schedo.core.model import BY_HAND, Expect, Job, Rule, Schedule, Trigger
from schedo.core.triggers import latest_through, next_after


class ExpectationState(StrEnum):
    """The two states of an expectation."""

    OK = "ok"
    MISSED = "missed"


class Overdue(NamedTuple):
    """The instants whose limit has passed: the last one, and their number."""

    instant: int
    number: int


class ExpectationSpec(msgspec.Struct, frozen=True):
    """A named expectation as the client defines it, validated."""

    name: str
    rule: Rule  # of cron or of an interval
    expect: Expect
    cron_source: str | None = None


@dataclass(slots=True)
class Expectation:
    """One expectation; that of a schedule has the schedule's id and name."""

    id: int
    name: str
    of_schedule: bool  # else it is a named one, which beats keep
    rule: Rule
    expect: Expect
    created_at: int
    updated_at: int
    through: int
    since: int  # the instant of the last change of its state
    cron_source: str | None = None  # of a named one: the expression as the user wrote it
    state: ExpectationState = ExpectationState.OK
    missed: int = 0  # the number of misses
    kept_at: int | None = None  # the last completed run or beat
    long_job_id: int | None = None  # the last run that took too long
    phase_us: int = 0  # see Schedule
    lag_us: int = 0
    lag_through: int = 0  # the limits of the instants up to here are prolonged
    early: tuple[int, ...] = ()
    owner: str = BY_HAND  # what declares a named one

    @property
    def spec(self) -> ExpectationSpec:
        """The spec of a named one."""
        return ExpectationSpec(self.name, self.rule, self.expect, self.cron_source)

    def open_at(self) -> int | None:
        """Return the first instant that is not settled, or None."""
        if self.of_schedule:
            return next_after(self._moved_rule(), self.through)
        if self.state is ExpectationState.MISSED:
            return None  # until the next beat
        if self.rule.every_us is not None:
            return self.through + self.rule.every_us
        return next_after(self.rule, self.through)

    def limit(self) -> int | None:
        """Return the instant at which it is missed if no run or beat comes before, or None."""
        within = self.expect.within_us
        instant = None if within is None else self.open_at()
        return None if instant is None or within is None else instant + within + self._lag(instant)

    def take_overdue(self, now: int) -> Overdue | None:
        """Settle the instants whose limit has passed; return them, or None."""
        last, count = 0, 0
        while (limit := self.limit()) is not None and limit <= now:
            instant, within = self.open_at(), self.expect.within_us
            assert instant is not None, "it has a limit"
            assert within is not None, "it has a limit"
            if not self.of_schedule:
                return Overdue(instant, 1)  # and there is no limit until the next beat
            until = now - within - self._lag(instant)
            if instant <= self.lag_through:
                until = min(until, self.lag_through)
            early = sum(each <= until for each in self.early)
            latest, number = latest_through(self._moved_rule(), self.through, until, early + 1)
            last = next(each for each in latest if each not in self.early)
            count += number - early
            self._settle(latest[0])
        return Overdue(last, count) if count else None

    def complete(self, scheduled_for: int | None, replaced: int = 0) -> None:
        """Settle the instant of a completed run; None: the run was triggered by hand.

        replaced: how many instants just before that have no run of their own, because this run was
        caught up. Those before them may still wait for theirs.
        """
        if scheduled_for is None or scheduled_for <= self.through:
            return
        earlier: list[int] = []
        if replaced:
            most = min(replaced, EARLY_RUNS_KEPT)
            rule, before = self._moved_rule(), scheduled_for - 1
            earlier, number = latest_through(rule, self.through, before, most)
            if number <= replaced:
                self._settle(scheduled_for)
                return
        # Beyond the bound the oldest are dropped: an instant has been open for a hundred runs.
        done = sorted({*self.early, *earlier, scheduled_for})
        self.early = tuple(done[-EARLY_RUNS_KEPT:])
        self._settle(self.through)

    def instant_of(self, run: Job, offset_us: int) -> int | None:
        """Return the instant of a run of the schedule, where it is now; None: a run by hand."""
        if run.trigger is Trigger.MANUAL or run.scheduled_for is None:
            return None
        moved_us = 0 if self.rule.every_us is None else offset_us - run.offset_us
        return run.scheduled_for + moved_us

    def beat(self, now: int) -> None:
        """Wait for the next beat from now on."""
        self.through = now
        self.lag_us = 0

    def shift(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time, as those of an interval do."""
        if self.rule.every_us is None or not self._has_begun():
            return
        self.phase_us += delta_us
        self.through += delta_us
        self.early = tuple(instant + delta_us for instant in self.early)

    def follow_clock(self, delta_us: int, now: int) -> bool:
        """Follow a change of the clock at `now` of the old one; return whether limits moved."""
        self.shift(delta_us)
        instant = self.open_at()
        if self.rule.every_us is not None or instant is None or instant > now:
            return False
        self.lag_us = self._lag(instant) + delta_us
        self.lag_through = now
        return True

    def align(self, schedule: Schedule) -> bool:
        """Expect the instants of an interval where the schedule has them; return if that is new.

        The schedule begins to count elapsed time with its first fire or, if it is paused over its
        start_at, when it is resumed; here instants are then settled later, or earlier.
        """
        start_at = self.rule.start_at
        if self.rule.every_us is None or start_at is None:
            return False
        before = (self.phase_us, self.through)
        self.phase_us = schedule.phase_us
        if schedule.counts_elapsed:
            self.through = max(self.through, start_at + self.phase_us - 1)
        return before != (self.phase_us, self.through)

    def copy(self) -> Expectation:
        """Return a copy that later turns do not change."""
        return dataclasses.replace(self)

    def _has_begun(self) -> bool:
        start_at = self.rule.start_at
        return start_at is None or self.through - self.phase_us >= start_at - 1

    def _lag(self, instant: int) -> int:
        return self.lag_us if instant <= self.lag_through else 0

    def _moved_rule(self) -> Rule:
        if self.phase_us == 0:
            return self.rule
        return msgspec.structs.replace(self.rule, phase_us=self.phase_us)

    def _settle(self, through: int) -> None:
        """Move the watermark, and on over the instants whose runs have completed early."""
        self.through = through
        while self.early:
            following = self.open_at()
            if following is not None and following < self.early[0]:
                break
            self.through = max(self.through, self.early[0])
            self.early = self.early[1:]
