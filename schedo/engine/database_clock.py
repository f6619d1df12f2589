"""The clock of the servers of a cluster: that of the database, which all of them ask.

The clocks of machines differ, and each may be set. If every server followed its own, a job would
become due earlier or later with each change of its owner. So all follow the database: a heartbeat
asks it for the time, and between two heartbeats the time since the machine's boot goes on. The
clock of the machine itself does not count.

A reading is made as in the Network Time Protocol (RFC 5905, sections 8 and 10): from the instants
at which the request was sent and received, and the response too. Of the last eight readings, the
one with the shortest delay counts. The clock of the database is within half of its delay, before or
after it; a clock that is there already stays. The first reading is taken at its earliest, because a
job may start late, but not early. A small difference is followed gradually; a large one means that
the clock of the database was set, and is a step, as for the clock of a machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import itemgetter

from schedo.clock import DRIFT_US, STEP_MIN_US, SystemClock, since_boot_ns, wall_us

READINGS = 8
# From one reading to the next, a tenth of a second later: at most 50 ms in a second.
SLEW_MAX_US = 5_000
FIRST = 3  # readings that come before the first job can


class DatabaseClock(SystemClock):
    """The clock of a database; until the first reading, that of this machine."""

    def __init__(self) -> None:
        super().__init__()
        self._readings: deque[tuple[int, int]] = deque(maxlen=READINGS)  # delay and base
        self._measured_us = self.base_us
        self._reported_us = self.base_us
        self._alarm_at: int | None = None

    def now(self) -> int:
        """Return the time of the database, without steps not yet followed."""
        return since_boot_ns() // 1000 + self.base_us

    def step_us(self) -> int:
        """Return the step that is not yet followed, or 0."""
        step_us = self._measured_us - self.base_us
        return step_us if abs(step_us) >= STEP_MIN_US else 0

    def follow(self, step_us: int) -> None:
        """Let `now` jump by this part of the step."""
        super().follow(step_us)
        self._note_ahead()

    def start(self, wake: Callable[[], None], stepped: Callable[[], None]) -> None:
        """Bind to the running loop."""

        def on_alarm() -> None:
            self._alarm_at = None
            self._note_ahead()  # the clock of the machine may have been set
            wake()

        super().start(on_alarm, stepped)

    def arm(self, at: int | None) -> None:
        """Set the alarm to the instant, or to at most SLEEP_MAX_US ahead."""
        self._alarm_at = at
        super().arm(at)

    def ahead_us(self) -> int:
        """Return by how much the clock of this machine is ahead of that of the database."""
        return wall_us() - self.now()

    def note_reading(self, base_us: int, delay_us: int) -> None:
        """Take a reading of the clock of the database.

        base_us: this clock minus the time since the machine's boot. delay_us: how long the reading
        was on its way; the error is at most half of it. A reading that took long does not count,
        because it could look like a step; nor does one with a negative delay, during which the
        clock of the database was set.
        """
        if not 0 <= delay_us < STEP_MIN_US:
            return
        self._readings.append((delay_us, base_us))
        delay_us, base_us = min(self._readings, key=itemgetter(0))
        earliest_us, latest_us = base_us - delay_us // 2, base_us + delay_us // 2
        is_first = len(self._readings) <= FIRST
        self._measured_us = (
            earliest_us if is_first else _limit(self.base_us, earliest_us, latest_us)
        )
        difference_us = self._measured_us - self.base_us
        if abs(difference_us) >= STEP_MIN_US:
            self._stepped()
        elif is_first:
            self.base_us = self._measured_us
        else:
            self.base_us += _limit(difference_us, -SLEW_MAX_US, SLEW_MAX_US)
        if abs(self.base_us - self._reported_us) >= DRIFT_US:
            self._reported_us = self.base_us
            self._stepped()
        self._note_ahead()

    def _note_ahead(self) -> None:
        self._ahead_us = self.ahead_us()
        if self._alarm is not None and self._alarm_at is not None:
            self.arm(self._alarm_at)  # it is set by the clock of the machine


def _limit(value: int, least: int, most: int) -> int:
    return max(least, min(most, value))
