"""A long list does not hold up what else is to be done."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Generator

import pytest

from schedo.web import slices
from schedo.web.slices import describe_each
from tests.web.world import World


@types.coroutine
def next_iteration() -> Generator[None, None, None]:
    """Let everything run that is ready now, and nothing that becomes ready by it."""
    yield


async def test_each_item_is_described_in_order() -> None:
    assert await describe_each(str, range(100)) == [str(number) for number in range(100)]


async def test_a_page_of_schedules_lets_others_come_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    for number in range(200):
        await world.put(f"/v1/schedules/s{number:03}", {"task": "a", "every": "1h"})
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await next_iteration()

    counting = asyncio.create_task(count())
    page = await world.get("/v1/schedules?limit=200")
    counting.cancel()

    assert [item["name"] for item in page.json()["items"]] == [f"s{n:03}" for n in range(200)]
    assert turns >= 200
