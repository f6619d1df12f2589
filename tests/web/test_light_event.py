"""A LightEvent behaves like asyncio.Event."""

from __future__ import annotations

import asyncio

import pytest

from schedo.web.light_event import LightEvent

Kind = type[LightEvent] | type[asyncio.Event]
both = pytest.mark.parametrize("kind", [LightEvent, asyncio.Event])


async def turn() -> None:
    """Run the ready callbacks."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


@both
async def test_set_wakes_all_waiters(kind: Kind) -> None:
    event = kind()
    waiting = [asyncio.create_task(event.wait()) for _ in range(3)]
    await turn()
    assert not event.is_set()

    event.set()

    assert await asyncio.gather(*waiting) == [True, True, True]
    assert event.is_set()


@both
async def test_wait_returns_at_once_until_the_event_is_cleared(kind: Kind) -> None:
    event = kind()
    event.set()
    assert await event.wait()

    event.clear()
    waiting = asyncio.create_task(event.wait())
    await turn()

    assert not waiting.done()
    event.set()
    assert await waiting


@both
async def test_a_cancelled_waiter_does_not_affect_the_others(kind: Kind) -> None:
    event = kind()
    first, second = (asyncio.create_task(event.wait()) for _ in range(2))
    await turn()

    first.cancel()
    await turn()
    event.set()

    assert await second
    assert first.cancelled()


@both
async def test_a_waiter_woken_and_cancelled_at_once_does_not_affect_the_others(kind: Kind) -> None:
    event = kind()
    first, second = (asyncio.create_task(event.wait()) for _ in range(2))
    await turn()

    event.set()
    first.cancel()
    event.clear()

    assert await second
    with pytest.raises(asyncio.CancelledError):
        await first
