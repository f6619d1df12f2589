"""The servers of a cluster follow the clock of their database, whatever their machines show."""

from __future__ import annotations

import asyncio

import pytest

from schedo.clock import DRIFT_US, STEP_MIN_US, wall_us
from schedo.core.limits import MILLISECOND, SECOND
from schedo.engine import database_clock
from schedo.engine.database_clock import READINGS, SLEW_MAX_US, DatabaseClock

NEAR_US = 100 * MILLISECOND
LONG_S = 20.0


class Told:
    """Counts how often a clock has said that a step, or a drift, is to be followed."""

    def __init__(self, clock: DatabaseClock) -> None:
        self.count = 0
        clock._stepped = self._note

    def _note(self) -> None:
        self.count += 1


def at_database(ahead_us: int) -> DatabaseClock:
    """Return the clock of a database that is ahead of this machine, after the first readings."""
    clock = DatabaseClock()
    base_us = clock.base_us + ahead_us
    for _ in range(READINGS):
        clock.note_reading(base_us, 0)
    clock.follow(clock.step_us())
    return clock


def apart_us(clock: DatabaseClock) -> int:
    """Return by how much the clock is ahead of this machine's."""
    return clock.now() - wall_us()


@pytest.mark.parametrize("ahead_us", [5 * SECOND, -5 * SECOND, 250_000, -250_000])
def test_the_time_is_that_of_the_database_from_the_first_reading_on(ahead_us: int) -> None:
    clock = at_database(ahead_us)

    assert abs(apart_us(clock) - ahead_us) < NEAR_US
    assert abs(clock.ahead_us() + ahead_us) < NEAR_US


def test_the_reading_with_the_shortest_delay_counts() -> None:
    clock = at_database(0)
    base_us = clock.base_us

    for number in range(READINGS - 1):
        clock.note_reading(base_us + 30_000, 60_000 + number)

    assert clock.base_us == base_us


def test_a_clock_begins_at_the_earliest_that_its_first_readings_allow() -> None:
    """A job may start late, but not early."""
    clock = DatabaseClock()
    base_us = clock.base_us

    clock.note_reading(base_us + 40_000, 90_000)
    assert clock.base_us == base_us + 40_000 - 45_000
    clock.note_reading(base_us + 10_000, 30_000)

    assert clock.base_us == base_us + 10_000 - 15_000


@pytest.mark.parametrize("apart_us", [-50, 50])
def test_a_clock_within_the_error_of_the_best_reading_stays(apart_us: int) -> None:
    clock = at_database(0)
    base_us = clock.base_us

    for _ in range(2 * READINGS):
        clock.note_reading(base_us + apart_us, 100)

    assert clock.base_us == base_us


def test_a_reading_that_took_long_does_not_count() -> None:
    clock = at_database(0)

    for _ in range(READINGS):
        clock.note_reading(clock.base_us + SECOND, STEP_MIN_US)

    assert clock.step_us() == 0


def test_a_reading_during_which_the_database_was_set_does_not_count() -> None:
    """The database was set by 10 s between the request and its response, so half of it shows."""
    clock = at_database(0)

    clock.note_reading(clock.base_us + 5 * SECOND, 100 - 10 * SECOND)

    assert clock.step_us() == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_difference_is_followed_gradually(sign: int) -> None:
    clock = at_database(0)
    base_us = clock.base_us
    for _ in range(READINGS):
        clock.note_reading(base_us + sign * 30 * SLEW_MAX_US, 100)

    assert clock.base_us == base_us + sign * SLEW_MAX_US  # the last reading has begun to count
    clock.note_reading(base_us + sign * 30 * SLEW_MAX_US, 100)
    assert clock.base_us == base_us + sign * 2 * SLEW_MAX_US
    assert clock.step_us() == 0


@pytest.mark.parametrize("step_us", [STEP_MIN_US, -STEP_MIN_US, 3_600 * SECOND])
def test_a_set_clock_of_the_database_is_a_step_that_waits_until_it_is_followed(
    step_us: int,
) -> None:
    clock = at_database(0)
    told, base_us = Told(clock), clock.base_us

    for _ in range(READINGS):
        clock.note_reading(base_us + step_us, 0)

    assert (told.count, clock.step_us(), clock.base_us) == (1, step_us, base_us)
    clock.follow(clock.step_us())
    assert (clock.step_us(), clock.base_us) == (0, base_us + step_us)


def test_a_drift_is_reported_before_it_could_look_like_a_step() -> None:
    clock = at_database(0)
    told, base_us = Told(clock), clock.base_us

    drifted_us = 0
    while drifted_us < 3 * DRIFT_US:
        drifted_us += SLEW_MAX_US // 5
        for _ in range(READINGS):
            clock.note_reading(base_us + drifted_us, 0)

    assert told.count == 3
    assert clock.step_us() == 0


def test_a_clock_of_the_machine_that_is_set_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = at_database(0)
    told, before = Told(clock), clock.now()
    real = wall_us

    monkeypatch.setattr(database_clock, "wall_us", lambda: real() + 3_600 * SECOND)
    clock.note_reading(clock.base_us, 100)

    assert 0 <= clock.now() - before < NEAR_US * 100
    assert (told.count, clock.step_us()) == (0, 0)
    assert abs(clock.ahead_us() - 3_600 * SECOND) < NEAR_US * 100


@pytest.mark.parametrize("ahead_us", [5 * SECOND, -5 * SECOND])
async def test_an_alarm_fires_by_the_clock_of_the_database(ahead_us: int) -> None:
    clock, fired = at_database(ahead_us), asyncio.Event()
    clock.start(fired.set, lambda: None)
    due = clock.now() + 30 * MILLISECOND

    clock.arm(due)
    await asyncio.wait_for(fired.wait(), LONG_S)

    assert due <= clock.now() < due + 4 * SECOND
    clock.close()


async def test_an_alarm_is_set_anew_when_the_difference_to_the_machine_changes() -> None:
    clock = at_database(0)
    clock.start(lambda: None, lambda: None)
    due = clock.now() + 5 * SECOND
    clock.arm(due)
    assert clock._alarm is not None
    before = clock._alarm.armed_at

    for _ in range(READINGS):
        clock.note_reading(clock.base_us + SLEW_MAX_US, 100)

    assert before - clock._alarm.armed_at >= SLEW_MAX_US - 100
    clock.close()
