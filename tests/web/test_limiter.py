"""A request without room waits in line, and no room is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from schedo.web.limiter import WeightedSemaphore


class Holder:
    """Holds an amount of the limit until the test releases it."""

    def __init__(self, semaphore: WeightedSemaphore, amount: int) -> None:
        self.is_in = False
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._hold(semaphore, amount))

    async def _hold(self, semaphore: WeightedSemaphore, amount: int) -> None:
        async with semaphore.taken(amount):
            self.is_in = True
            try:
                await self._leave.wait()
            finally:
                self.is_in = False

    async def leave(self) -> None:
        self._leave.set()
        await self.task

    async def cancel(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def holders(semaphore: WeightedSemaphore, *amounts: int) -> list[Holder]:
    found = [Holder(semaphore, amount) for amount in amounts]
    await settled(found)
    return found


async def settled(found: list[Holder]) -> None:
    await asyncio.wait([holder.task for holder in found], timeout=0)


def inside(found: list[Holder]) -> list[int]:
    return [number for number, holder in enumerate(found) if holder.is_in]


async def test_waiting_requests_enter_in_order_as_far_as_their_amounts_fit() -> None:
    found = await holders(WeightedSemaphore(10), 4, 4, 4, 2)
    assert inside(found) == [0, 1], "the last one would fit, but it is not its turn"

    await found[0].leave()
    await settled(found)
    assert inside(found) == [1, 2, 3]


async def test_an_amount_above_the_limit_enters_alone() -> None:
    found = await holders(WeightedSemaphore(10), 1, 99, 1)
    assert inside(found) == [0]

    await found[0].leave()
    await settled(found)
    assert inside(found) == [1]
    await found[1].leave()
    await settled(found)
    assert inside(found) == [2]


async def test_a_cancelled_waiting_request_lets_the_next_one_enter() -> None:
    found = await holders(WeightedSemaphore(10), 8, 8, 2)
    assert inside(found) == [0]

    await found[1].cancel()
    await settled(found)
    assert inside(found) == [0, 2]


async def test_a_request_cancelled_as_it_enters_frees_its_amount() -> None:
    found = await holders(WeightedSemaphore(10), 8, 8, 8)

    leaving = asyncio.create_task(found[0].leave())
    await asyncio.wait([found[0].task])
    await found[1].cancel()
    await leaving
    await settled(found)

    assert inside(found) == [2]
