"""The schedules of an application whose owner cannot be reached when the application starts."""

from __future__ import annotations

import asyncio

import pytest

from schedo.core.model import JobSpec, Rule, ScheduleSpec
from schedo.core.shards import SHARDS
from schedo.tasks.declarations import declare_schedules
from tests.cluster.members import running_cluster
from tests.cluster.test_forwarding import text_of


async def test_servers_that_can_be_reached_get_the_schedules_of_another_one_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster(3) as (everything, [first, _, third]):
        first.router.start()
        await third.http.stop(grace_s=0.05)
        pauses: list[float] = []

        async def wait_for_change(timeout_s: float) -> None:
            pauses.append(timeout_s)
            if len(pauses) == 10:
                everything.give(range(SHARDS), 1)

        monkeypatch.setattr(first.router.servers, "wait_for_change", wait_for_change)
        spec = ScheduleSpec(text_of(third), Rule(every_us=3_600_000_000), JobSpec("demo", b"{}"))

        await declare_schedules(first.engine, "code:shop", [spec], is_pruning=False)
        await asyncio.gather(*first.router.servers.background)

        assert [round(each, 2) for each in pauses] == [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 5]
        assert (await first.engine.get_schedule(spec.name)).name == spec.name
