"""Waiting jobs are counted for each request while that is cheap, else in the background."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from schedo.engine.gauges import JobCounts
from schedo.errors import StoreError
from schedo.store.base import Counts, Store
from schedo.testing.clock import VirtualClock

MILLISECOND = 1_000
T0 = 1_000_000_000


class Clock(VirtualClock):
    def advance(self, us: int) -> None:
        self._now += us


class CountingStore:
    """Returns one job more at each count; a count lasts until the test ends it."""

    def __init__(self, clock: Clock, takes_us: int) -> None:
        self.clock = clock
        self.takes_us = takes_us
        self.counted = 0
        self.gate: asyncio.Event | None = None
        self.fails = False

    async def count_jobs(self) -> Counts:
        if self.fails:
            raise StoreError("the disk is gone")
        if self.gate is not None:
            await self.gate.wait()
        self.clock.advance(self.takes_us)
        self.counted += 1
        return Counts({"default": {"queued": self.counted}})


def make(takes_us: int) -> tuple[JobCounts, CountingStore, Clock]:
    clock = Clock(T0)
    store = CountingStore(clock, takes_us)
    return JobCounts(cast(Store, store), clock), store, clock


def queued(counts: Counts) -> int:
    return counts.by_queue["default"]["queued"]


async def test_cheap_counts_are_current_for_each_request() -> None:
    counts, _, clock = make(takes_us=MILLISECOND)

    seen = [await counts.read_soon() for _ in range(3)]

    assert [queued(each) for each, _ in seen] == [1, 2, 3]
    assert seen[-1][1] == clock.now()


async def test_a_request_does_not_wait_for_an_expensive_count() -> None:
    counts, store, clock = make(takes_us=300 * MILLISECOND)
    await counts.read_soon()
    store.gate = asyncio.Event()  # no count ends any more
    clock.advance(60_000 * MILLISECOND)

    found, counted_at = await counts.read_soon()

    assert (queued(found), counted_at) == (1, T0 + 300 * MILLISECOND)
    store.gate.set()
    assert queued((await counts.read())[0]) == 2  # counted in the background


async def test_expensive_counts_take_at_most_a_tenth_of_the_time() -> None:
    counts, store, clock = make(takes_us=300 * MILLISECOND)
    await counts.read_soon()

    for _ in range(29):
        clock.advance(100 * MILLISECOND)
        found, _ = await counts.read_soon()
        assert queued(found) == 1
    clock.advance(200 * MILLISECOND)  # more than ten times as long as the count took
    await counts.read_soon()
    found, _ = await counts.read()  # waits for the count under way

    assert queued(found) == store.counted == 2


async def test_a_failed_first_count_raises_its_error() -> None:
    counts, store, _ = make(takes_us=MILLISECOND)
    store.fails = True

    with pytest.raises(StoreError):
        await counts.read_soon()
