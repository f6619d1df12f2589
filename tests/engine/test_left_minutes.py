"""The day of a cluster has the minutes of the servers that are gone."""

from __future__ import annotations

from pathlib import Path

from schedo.core.limits import MINUTE, SECOND
from schedo.core.series import COUNTS
from schedo.errors import StoreError
from tests.engine.test_ownership import sharing
from tests.engine.test_series import counts, pass_second
from tests.engine.world import T0, World


def minute(before: int, started: int) -> tuple[int, str]:
    """Return a stored minute that began `before` minutes before that of the start."""
    return T0 - T0 % MINUTE - before * MINUTE, f'{{"counts":{{"started":{started}}}}}'


def started_in_day(world: World) -> int:
    return world.engine.series.sums_of_day()[COUNTS.index("started")]


async def end_minute(world: World) -> None:
    """Let the present minute end, and wait until it is saved."""
    pass_second(world, MINUTE // SECOND)
    saving = world.engine.series._saving
    assert saving is not None
    await saving


async def test_the_day_has_the_minutes_that_servers_have_left(path: Path) -> None:
    async with sharing(path) as (world, shards):
        pass_second(world)
        shards.left = [[minute(2, 30), minute(5, 500)], [minute(3, 7)]]

        await end_minute(world)

        assert started_in_day(world) == 537
        assert counts(list(world.engine.series.minutes.since(0))[-1]) == {"started": 500}


async def test_minutes_that_servers_have_left_count_later_if_the_store_fails(path: Path) -> None:
    async with sharing(path) as (world, shards):
        pass_second(world)
        shards.left, shards.failures = [[minute(2, 30)]], [StoreError("the database is away")]
        await end_minute(world)
        assert started_in_day(world) == 0

        await end_minute(world)

        assert started_in_day(world) == 30
