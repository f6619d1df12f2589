"""The backoff between the requests of a worker."""

from __future__ import annotations

import asyncio

import pytest

from schedo.errors import SchedoError
from schedo.worker.remote.poller import Busy
from schedo.worker.remote.retry_delay import RetryDelay


def test_the_backoff_doubles_up_to_five_seconds_and_a_response_resets_it() -> None:
    retry_delay = RetryDelay(lambda: 0.5, asyncio.Event())

    assert [retry_delay.delay_s(None) for _ in range(7)] == [
        *(0.0125, 0.125, 0.25, 0.5, 1.0, 2.0, 2.5)
    ]
    retry_delay.note_success()
    assert retry_delay.delay_s(None) == 0.0125


@pytest.mark.parametrize("random", [0.0, 0.5, 0.999])
def test_the_jitter_covers_the_whole_backoff(random: float) -> None:
    assert RetryDelay(lambda: random, asyncio.Event()).delay_s(None) == random * 0.025


@pytest.mark.parametrize(
    ("asked", "random", "delay"),
    [(0, 0.5, 0.0), (2, 0.0, 2.0), (2, 0.5, 2.5), (3600, 0.5, 75.0)],
    ids=str,
)
def test_retry_after_is_the_shortest_wait(asked: float, random: float, delay: float) -> None:
    assert RetryDelay(lambda: random, asyncio.Event()).delay_s(asked) == delay


async def test_an_event_ends_the_wait_for_a_retry() -> None:
    waking = asyncio.Event()
    retry_delay = RetryDelay(lambda: 0.999, waking)
    waking.set()

    async with asyncio.timeout(10):
        await retry_delay.wait_after(Busy("draining", 60.0))
    assert not waking.is_set()


async def test_the_same_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    retry_delay = RetryDelay(lambda: 0.0, asyncio.Event())

    for _ in range(3):
        await retry_delay.wait_after(SchedoError("no answer"))

    assert [record.message for record in caplog.records] == ["no answer; retrying"]


def test_early_empty_responses_slow_the_polls_down() -> None:
    retry_delay = RetryDelay(lambda: 0.0, asyncio.Event())

    assert [retry_delay.idle_s(is_idle=True) for _ in range(9)] == [
        *(0.0, 0.0, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0)
    ]
    assert retry_delay.idle_s(is_idle=False) == 0.0
    assert retry_delay.idle_s(is_idle=True) == 0.0
