"""An engine whose server shares the limits of queues with other servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schedo.core.limit_shares import LimitUse
from schedo.core.limits import MINUTE
from schedo.core.shards import SHARDS, shard_of
from schedo.engine.ownership import Ownership
from schedo.errors import StoreError, Unavailable
from schedo.store.cluster import Claim, Lower
from tests.engine.test_ownership import Shards
from tests.engine.world import World, running

HOME = shard_of("few")


class Limits:
    """A fake of QueueLimits, which returns the shares of the test and records each claim."""

    def __init__(self) -> None:
        self.shares = {"few": 0}
        self.claims: list[Mapping[str, Claim]] = []
        self.uses: list[Mapping[str, LimitUse]] = []
        self.lowered: Mapping[str, LimitUse] = {}
        self.to_lower = {"few": 9}
        self.failures: list[Exception] = []
        self.asked = asyncio.Event()

    async def claim(self, claims: Mapping[str, Claim]) -> Mapping[str, int]:
        self.claims.append(claims)
        return self._reply()

    async def divide(
        self, uses: Mapping[str, LimitUse], turn: int, lower: Lower
    ) -> Mapping[str, int]:
        self.uses.append(uses)
        self.lowered = lower(self.to_lower)
        return self._reply()

    def _reply(self) -> Mapping[str, int]:
        self.asked.set()
        if self.failures:
            raise self.failures.pop()
        return self.shares

    async def ask(self) -> None:
        """Wait for two more calls: the second one begins after the first has returned."""
        for _ in range(2):
            self.asked.clear()
            await self.asked.wait()


@asynccontextmanager
async def sharing(path: Path, *, is_home: bool) -> AsyncIterator[tuple[World, Limits]]:
    """Run a server that has one half of the shards, and a queue with a limit of 2."""
    async with running(path) as world:
        shards, limits = Shards(), Limits()
        shards.mine = {shard for shard in range(SHARDS) if (shard == HOME) == is_home}
        shards.limits = limits  # type: ignore[attr-defined]
        loop = world.engine._loop
        world.engine.ownership = Ownership(loop, world.engine.store, shards)  # type: ignore[arg-type]
        world.engine.ownership.start()
        loop.scheduler.limits.begin()
        await world.engine.change_queue("few", concurrency=2)
        yield world, limits


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedo.engine.limit_sharing.LOOK_S", 0.001)


@pytest.mark.parametrize("is_home", [True, False])
async def test_jobs_start_as_far_as_the_server_has_a_share(path: Path, is_home: bool) -> None:
    async with sharing(path, is_home=is_home) as (world, limits):
        for _ in range(3):
            await world.submit(queue="few")
        await limits.ask()
        assert not world.worker.leases

        limits.shares = {"few": 1}
        await limits.ask()
        await world.engine.flush()

        assert len(world.worker.leases) == 1
        if is_home:
            assert limits.uses[-1]["few"] == LimitUse(2, 1, running=1, waiting=2)
        else:
            assert limits.claims[-1]["few"] == Claim(wanted=2, running=1, share=1)


async def test_a_server_that_needs_nothing_claims_nothing(path: Path) -> None:
    async with sharing(path, is_home=False) as (world, limits):
        await world.submit(queue="few", delay_us=MINUTE)
        await limits.asked.wait()
        assert [claims["few"].wanted for claims in limits.claims] == [0] * len(limits.claims)
        world.engine._loop.scheduler.limits.give({"few": 0})
        before = len(limits.claims)

        assert world.engine.ownership is not None
        for _ in range(3):
            await world.engine.ownership._limits.look()

        assert len(limits.claims) - before <= 1  # one may have been on its way


async def test_the_home_uses_less_before_others_get_more(path: Path) -> None:
    async with sharing(path, is_home=True) as (world, limits):
        limits.shares = {"few": 2}
        for _ in range(3):
            await world.submit(queue="few")
        await limits.ask()

        limits.to_lower = {"few": 1, "gone": 1}
        limits.shares = {"few": 1}
        await limits.ask()

        assert limits.lowered["few"].share == 1
        assert limits.lowered.keys() == {"few"}


async def test_after_a_failure_it_goes_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sharing(path, is_home=True) as (world, limits):
        limits.failures = [ValueError("a bug"), StoreError("the store is away")]
        limits.shares = {"few": 2}
        await world.submit(queue="few")
        for _ in range(3):
            await limits.ask()
        await world.engine.flush()

        assert len(world.worker.leases) == 1
        assert "the limits of queues were not divided" in caplog.text


async def test_shares_for_an_older_scheduler_are_dropped(path: Path) -> None:
    async with sharing(path, is_home=True) as (world, limits):
        await world.submit(queue="few")
        await limits.ask()
        assert world.engine.ownership is not None
        limit_sharing, loop = world.engine.ownership._limits, world.engine._loop
        old = loop.scheduler.limits

        await loop.restart(world.engine.ownership._cluster.change_shards)
        limit_sharing._give(old, {"few": 2})

        assert old.uses()["few"].share == 0
        with pytest.raises(Unavailable, match="a new one"):
            limit_sharing._lower(old, {"few": 2})
