"""Servers of a cluster whose clocks differ: a schedule moves, and each instant comes once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count, pairwise

import pytest

from schedo.core.limits import HOUR, MINUTE, SECOND
from schedo.core.model import Catchup, JobSpec, Overlap, Rule, ScheduleSpec
from schedo.core.shards import SHARDS, shard_of
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.store.postgres.store import PostgresStore
from schedo.testing.clock import VirtualClock
from tests.engine.world import T0, Answers, spec

RULES = {"cron": Rule(cron="* * * * * *"), "every": Rule(every_us=SECOND)}


class Server:
    """An engine with a clock of its own, on a store that it shares."""

    def __init__(self, url: str, now: int, boot: int) -> None:
        self.store = PostgresStore(url, 10 * SECOND)
        self.clock = VirtualClock(now, boot=boot)
        self.engine = Engine(self.store, self.clock, draw=lambda: 0.5)

    async def run_until(self, at: int) -> None:
        await self.clock.run_until(self.engine, at)

    async def owns(self, number: int) -> None:
        """Wait until the engine has this number of shards."""
        async with asyncio.timeout(30):
            while len(self.store._owned.shards) != number or not self.engine.health().ready:
                self.store.cluster._seen.clear()
                await self.store.cluster._seen.wait()
        await self.engine.flush()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ahead_us", [5 * SECOND, -5 * SECOND])
async def test_each_instant_comes_once_when_a_schedule_moves_to_an_earlier_or_later_clock(
    postgres_store_url: str, rule: str, ahead_us: int
) -> None:
    before = Server(postgres_store_url, T0 + ahead_us, boot=1)
    after = Server(postgres_store_url, T0, boot=2)
    async with AsyncExitStack() as stack:
        await before.engine.start()
        await after.engine.start()
        stack.push_async_callback(after.engine.stop)
        await before.owns(SHARDS // 2)
        name = next(n for k in count() if before.store.cluster.is_mine(shard_of(n := f"tick{k}")))
        schedule, _ = await before.engine.put_schedule(
            ScheduleSpec(
                name, RULES[rule], JobSpec("work"), overlap=Overlap.ALLOW, catchup=Catchup.ALL
            )
        )
        await before.run_until(T0 + ahead_us + 10 * SECOND)

        await before.engine.stop()
        await after.owns(SHARDS)
        await after.run_until(T0 + 30 * SECOND)

        page = await after.store.list_decisions(schedule.id, 100)
        instants = sorted(each.scheduled_for for each in page.decisions)
        assert {later - earlier for earlier, later in pairwise(instants)} == {SECOND}
        assert instants[0] <= T0 + ahead_us + SECOND
        assert instants[-1] > T0 + 29 * SECOND


@pytest.mark.parametrize("step_us", [HOUR, -HOUR], ids=["forward", "back"])
async def test_a_server_that_joins_after_the_clock_was_set_takes_over_delays_of_the_right_length(
    postgres_store_url: str, step_us: int
) -> None:
    before = Server(postgres_store_url, T0, boot=1)
    async with AsyncExitStack() as stack:
        await before.engine.start()
        answers: Answers = await before.engine.submit([spec(delay_us=MINUTE)])
        answer = answers[0]
        assert isinstance(answer, Accepted)
        before.clock.step(step_us)
        await before.engine.flush()
        await before.engine.flush()

        after = Server(postgres_store_url, before.clock.now(), boot=2)
        await after.engine.start()
        stack.push_async_callback(after.engine.stop)
        await before.engine.stop()
        await after.owns(SHARDS)

        assert (await after.engine.get(answer.job.id)).due_at == T0 + step_us + MINUTE
