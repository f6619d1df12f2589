"""The real clock's alarm: it rings at its instant, never before, and can be moved."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schedo import clock as clocks
from schedo.clock import SystemClock

LONG_S = 20.0
SOON_US = 30_000
FAR_US = 3_600_000_000


class Bell:
    """Notes when it rings."""

    def __init__(self, clock: SystemClock) -> None:
        self.rang_at: list[int] = []
        self._clock = clock
        self._rang = asyncio.Event()

    def ring(self) -> None:
        self.rang_at.append(self._clock.now())
        self._rang.set()

    async def rings(self) -> int:
        await asyncio.wait_for(self._rang.wait(), LONG_S)
        return self.rang_at[-1]


@pytest.fixture(params=["timerfd", "loop"])
async def bell(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[SystemClock, Bell]]:
    monkeypatch.setattr(clocks, "_has_timerfd", lambda: request.param == "timerfd")
    clock = SystemClock()
    bell = Bell(clock)
    clock.start(bell.ring, lambda: None)
    yield clock, bell
    clock.close()


async def test_it_rings_at_its_instant_and_not_before(bell: tuple[SystemClock, Bell]) -> None:
    clock, rung = bell
    due = clock.now() + SOON_US

    clock.arm(due)

    # The loop's own timer may be a little early; the engine then arms again.
    assert await rung.rings() >= due - (0 if clocks._has_timerfd() else 2_000)


async def test_an_instant_in_the_past_rings_at_once(bell: tuple[SystemClock, Bell]) -> None:
    clock, rung = bell

    clock.arm(0)

    assert await rung.rings() > 0


async def test_only_the_last_instant_counts(bell: tuple[SystemClock, Bell]) -> None:
    clock, rung = bell
    due = clock.now() + 2 * SOON_US
    clock.arm(due - SOON_US)

    clock.arm(due)

    assert await rung.rings() >= due - 2_000
    assert len(rung.rang_at) == 1


async def test_it_can_be_brought_forward(bell: tuple[SystemClock, Bell]) -> None:
    clock, rung = bell
    clock.arm(clock.now() + FAR_US)
    due = clock.now() + SOON_US

    clock.arm(due)

    assert due - 2_000 <= await rung.rings() < due + FAR_US


async def test_a_closed_clock_does_not_ring(bell: tuple[SystemClock, Bell]) -> None:
    clock, rung = bell
    clock.arm(clock.now() + SOON_US)

    clock.close()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rung._rang.wait(), 3 * SOON_US / 1_000_000)


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_now_goes_on_when_the_clock_is_set_until_the_step_is_followed(hours: int) -> None:
    clock = SystemClock()
    before = clock.now()
    clock.base_us -= hours * FAR_US  # as if the wall clock had been set since

    assert abs(clock.now() - (before - hours * FAR_US)) < FAR_US // 60
    assert round(clock.step_us() / FAR_US) == hours
    clock.follow(clock.step_us())

    assert abs(clock.now() - before) < FAR_US // 60
    assert clock.step_us() == 0


def test_whoever_reads_a_clock_that_was_set_is_told() -> None:
    clock = SystemClock()
    told: list[bool] = []
    clock._stepped = lambda: told.append(True)

    clock.now()
    clock.base_us -= FAR_US
    clock.now()

    assert told == [True]


def test_a_difference_below_half_a_second_counts_as_time_that_passes() -> None:
    clock = SystemClock()
    before = clock.now()
    clock.base_us -= 400_000

    assert clock.step_us() == 0
    assert 0 <= clock.now() - before < 200_000


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
async def test_the_alarm_rings_in_time_before_a_step_is_followed(
    bell: tuple[SystemClock, Bell], hours: int
) -> None:
    clock, rung = bell
    clock.base_us -= hours * FAR_US
    due = clock.now() + SOON_US

    clock.arm(due)

    assert due - 2_000 <= await rung.rings() < due + FAR_US // 60


def test_two_clocks_of_one_boot_agree() -> None:
    assert SystemClock().boot == SystemClock().boot != 0
    assert abs(SystemClock().base_us - SystemClock().base_us) < SOON_US
