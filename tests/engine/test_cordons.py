"""Cordons of remote workers: they outlive the server that has set them."""

from __future__ import annotations

from pathlib import Path

from tests.engine.test_worker_sessions import poll_at_once
from tests.engine.world import running


async def test_a_cordon_outlives_the_server_and_is_listed_before_the_worker_is_back(
    path: Path,
) -> None:
    async with running(path) as world:
        await poll_at_once(world)
        await world.engine.sessions.cordon("far", True)
    async with running(path) as world:
        await world.submit(task="resize")
        [away] = [each for each in world.engine.sessions.list() if each.kind == "remote"]
        assert (away.name, away.state, away.connected_at) == ("far", "cordoned", None)
        assert not (await poll_at_once(world)).leases
        await world.engine.sessions.cordon("far", False)
    async with running(path) as world:
        assert len((await poll_at_once(world)).leases) == 1
