"""The silence timer: pauses of this process do not count as another process's silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from schedo.silence_timer import SilenceTimer
from schedo.testing.loop import VirtualLoop


def run(check: Callable[[VirtualLoop, list[float]], object]) -> list[float]:
    """Return the times at which a timer of 2 s called; `check` may stall the loop meanwhile."""
    called: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timer = SilenceTimer(2.0, lambda: called.append(loop.time()))
        check(loop, called)
        await loop.pass_time(60.0)
        timer.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    return called


def test_the_timer_calls_back_after_its_timeout_without_a_message() -> None:
    assert run(lambda loop, called: None) == [pytest.approx(2.0)]


@pytest.mark.parametrize("at", [0.1, 1.0, 1.7, 1.9])
def test_a_pause_of_this_process_does_not_count_as_silence(at: float) -> None:
    (called,) = run(lambda loop, called: loop.call_later(at, loop.stall, 30.0))

    assert 31.5 <= called <= 32.5


@pytest.mark.parametrize("at", [0.1, 1.0, 1.7, 1.9])
def test_messages_that_arrived_during_a_pause_are_read_before_the_timeout(at: float) -> None:
    heard: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timer = SilenceTimer(2.0, lambda: pytest.fail("it was not silent"))

        def hear() -> None:
            heard.append(loop.time())
            timer.cancel()

        def pause() -> None:
            loop.stall(30.0)
            loop.call_later(0.001, hear)  # it runs after the timers that are already due

        loop.call_later(at, pause)
        await loop.pass_time(60.0)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())

    assert heard == [pytest.approx(at + 30.001)]


def test_the_timer_also_calls_back_in_a_loop_that_is_always_late() -> None:
    def stall(loop: VirtualLoop, called: list[float]) -> None:
        def again() -> None:
            loop.stall(1.0)
            if not called:
                loop.call_later(0.01, again)

        again()

    assert len(run(stall)) == 1


async def test_a_cancelled_timer_does_not_call_back() -> None:
    timer = SilenceTimer(0.0, lambda: pytest.fail("it was cancelled"))
    timer.cancel()

    for _ in range(5):
        await asyncio.to_thread(int)
