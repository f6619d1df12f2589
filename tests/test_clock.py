"""The alarm of the system clock fires at its instant, never before, and can be moved."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schedo import clock as clocks
from schedo.clock import SystemClock

LONG_S = 20.0
SOON_US = 30_000
FAR_US = 3_600_000_000


class AlarmLog:
    """Records when the alarm fires."""

    def __init__(self, clock: SystemClock) -> None:
        self.fired_at: list[int] = []
        self._clock = clock
        self._fired = asyncio.Event()

    def fire(self) -> None:
        self.fired_at.append(self._clock.now())
        self._fired.set()

    async def wait_fired(self) -> int:
        await asyncio.wait_for(self._fired.wait(), LONG_S)
        return self.fired_at[-1]


@pytest.fixture(params=["timerfd", "loop"])
async def alarm(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[SystemClock, AlarmLog]]:
    monkeypatch.setattr(clocks, "_has_timerfd", lambda: request.param == "timerfd")
    clock = SystemClock()
    alarm = AlarmLog(clock)
    clock.start(alarm.fire, lambda: None)
    yield clock, alarm
    clock.close()


async def test_the_alarm_fires_at_its_instant_and_not_before(
    alarm: tuple[SystemClock, AlarmLog],
) -> None:
    clock, alarm_log = alarm
    due = clock.now() + SOON_US

    clock.arm(due)

    # The loop's own timer may fire a little early; then the engine arms it again.
    assert await alarm_log.wait_fired() >= due - (0 if clocks._has_timerfd() else 2_000)


async def test_an_alarm_in_the_past_fires_at_once(alarm: tuple[SystemClock, AlarmLog]) -> None:
    clock, alarm_log = alarm

    clock.arm(0)

    assert await alarm_log.wait_fired() > 0


async def test_an_alarm_fires_only_at_the_instant_that_was_set_last(
    alarm: tuple[SystemClock, AlarmLog],
) -> None:
    clock, alarm_log = alarm
    due = clock.now() + 2 * SOON_US
    clock.arm(due - SOON_US)

    clock.arm(due)

    assert await alarm_log.wait_fired() >= due - 2_000
    assert len(alarm_log.fired_at) == 1


async def test_the_alarm_can_be_moved_to_an_earlier_instant(
    alarm: tuple[SystemClock, AlarmLog],
) -> None:
    clock, alarm_log = alarm
    clock.arm(clock.now() + FAR_US)
    due = clock.now() + SOON_US

    clock.arm(due)

    assert due - 2_000 <= await alarm_log.wait_fired() < due + FAR_US


async def test_the_alarm_of_a_closed_clock_does_not_fire(
    alarm: tuple[SystemClock, AlarmLog],
) -> None:
    clock, alarm_log = alarm
    clock.arm(clock.now() + SOON_US)

    clock.close()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(alarm_log._fired.wait(), 3 * SOON_US / 1_000_000)


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_the_time_does_not_jump_when_the_clock_is_set_until_the_step_is_followed(
    hours: int,
) -> None:
    clock = SystemClock()
    before = clock.now()
    clock.base_us -= hours * FAR_US  # as if the wall clock had been set forward meanwhile

    assert abs(clock.now() - (before - hours * FAR_US)) < FAR_US // 60
    assert round(clock.step_us() / FAR_US) == hours
    clock.follow(clock.step_us())

    assert abs(clock.now() - before) < FAR_US // 60
    assert clock.step_us() == 0


def test_a_read_of_a_clock_that_was_set_reports_the_step() -> None:
    clock = SystemClock()
    told: list[bool] = []
    clock._stepped = lambda: told.append(True)

    clock.now()
    clock.base_us -= FAR_US
    clock.now()

    assert told == [True]


def test_a_difference_below_half_a_second_is_not_a_step() -> None:
    clock = SystemClock()
    before = clock.now()
    clock.base_us -= 400_000

    assert clock.step_us() == 0
    assert 0 <= clock.now() - before < 200_000


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
async def test_the_alarm_fires_on_time_although_a_step_is_not_followed_yet(
    alarm: tuple[SystemClock, AlarmLog], hours: int
) -> None:
    clock, alarm_log = alarm
    clock.base_us -= hours * FAR_US
    due = clock.now() + SOON_US

    clock.arm(due)

    assert due - 2_000 <= await alarm_log.wait_fired() < due + FAR_US // 60


def test_two_clocks_on_one_machine_agree() -> None:
    assert SystemClock().boot == SystemClock().boot != 0
    assert abs(SystemClock().base_us - SystemClock().base_us) < SOON_US
