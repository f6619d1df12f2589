"""Attempts that cannot start wait for the end of the round; each slot tries once in a round."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from schedo.core.leases import Released, StopReason
from schedo.tasks.runner import StopSignal
from schedo.tasks.shortage import Shortage, is_shortage
from schedo.testing.loop import VirtualLoop

NO_PROCESS = OSError(errno.EAGAIN, "Resource temporarily unavailable")


def run(main: Callable[[VirtualLoop, Shortage], Coroutine[Any, Any, None]]) -> None:
    async def start() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await main(loop, Shortage("no command can be started"))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(start())


async def wait(shortage: Shortage, loop: VirtualLoop, *, after_s: float = 0.0) -> float:
    """Return when an attempt that could not begin is released."""
    await loop.pass_time(after_s)
    assert await shortage.wait(NO_PROCESS, StopSignal()) == Released()
    return round(loop.time(), 2)


def test_the_pause_grows_to_half_a_minute_while_no_attempt_can_begin() -> None:
    async def main(loop: VirtualLoop, shortage: Shortage) -> None:
        ends = [await wait(shortage, loop) for _ in range(7)]
        assert ends == [1, 3, 7, 15, 31, 61, 91]

    run(main)


def test_attempts_that_cannot_begin_are_released_together_after_the_pause() -> None:
    async def main(loop: VirtualLoop, shortage: Shortage) -> None:
        tries = [wait(shortage, loop, after_s=at) for at in (0.0, 0.0, 0.5, 0.9)]
        waiting = asyncio.gather(*tries)
        await loop.pass_time(5.0)
        assert waiting.result() == [1.0] * 4

    run(main)


def test_a_successful_start_ends_the_shortage() -> None:
    async def main(loop: VirtualLoop, shortage: Shortage) -> None:
        for end in (1.0, 2.0, 3.0):
            assert await wait(shortage, loop) == end
            assert shortage.not_ready_reasons() == [
                "no command can be started: Resource temporarily unavailable"
            ]
            shortage.end()
            assert shortage.not_ready_reasons() == []

    run(main)


def test_an_attempt_that_is_stopped_does_not_wait_for_the_pause() -> None:
    async def main(loop: VirtualLoop, shortage: Shortage) -> None:
        stop = StopSignal()
        waiting = asyncio.create_task(shortage.wait(NO_PROCESS, stop))
        await loop.pass_time(0.1)
        stop.set(StopReason.TIMEOUT)
        await loop.pass_time(0.1)
        assert waiting.result() == Released()

    run(main)


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (NO_PROCESS, True),
        (OSError(errno.ENOMEM, ""), True),
        (OSError(errno.ENFILE, ""), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOENT, ""), False),
        (OSError(errno.E2BIG, ""), False),
        (ValueError("embedded null byte"), False),
        (RuntimeError("cannot schedule new futures after shutdown"), False),
        (None, False),
    ],
)
def test_only_errors_of_the_machine_count_as_a_shortage(
    error: BaseException | None, is_so: bool
) -> None:
    assert is_shortage(error) is is_so
