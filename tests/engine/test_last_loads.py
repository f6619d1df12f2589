"""What a poll brings whose load ends at the standstill before a change of the shards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schedo.core.states import State
from tests.core.remote_site import make_poll
from tests.engine.test_placement import polling_workers, spec
from tests.engine.test_polls_in_doubt import ended_before_the_restart, hold_loads
from tests.engine.world import running
from tests.passes import one_pass


async def nothing() -> None:
    """Change no shard."""


async def test_an_invocation_that_is_accepted_at_the_standstill_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await ended_before_the_restart(path)
    async with running(path) as world:
        loop, sessions = world.engine._loop, world.engine.sessions
        [remote] = await polling_workers(world, "a")
        invoking = asyncio.create_task(world.engine.invoke(spec(), 1, 0.0))
        [lease] = (await remote.response()).leases
        began, goes_on = hold_loads(world, monkeypatch)
        other = asyncio.create_task(sessions.work(make_poll("b", running=frozenset({key}))))
        restarting = asyncio.create_task(loop.restart(nothing))
        await began.wait()

        held = frozenset({lease.key, key})
        accepting = asyncio.create_task(remote.report_in(accept=[lease.key], running=held))
        for _ in range(3):
            await one_pass()
        goes_on.set()
        await restarting
        await asyncio.gather(other, accepting, return_exceptions=True)

        async with asyncio.timeout(5):
            [job] = await invoking
        assert (job.state, job.worker) == (State.RUNNING, "a")
