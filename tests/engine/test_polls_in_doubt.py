"""A poll that waits for a load while its server is in doubt about its shards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from schedo.core.loads import Load, LoadJobs
from schedo.core.model import LeaseKey
from tests.core.remote_site import make_poll
from tests.engine.world import World, running
from tests.passes import one_pass


async def ended_before_the_restart(path: Path) -> LeaseKey:
    """Return the key of an attempt that only the store knows."""
    async with running(path) as world:
        await world.submit()
        key = world.worker.end().key
        await world.engine.flush()
        return key


def hold_loads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Event, asyncio.Event]:
    """Return an event of the begin of a load of jobs, and one that lets it go on."""
    load, began, goes_on = world.engine.store.load, asyncio.Event(), asyncio.Event()

    async def held(what: Load) -> Any:
        if isinstance(what, LoadJobs):
            began.set()
            await goes_on.wait()
        return await load(what)

    monkeypatch.setattr(world.engine.store, "load", held)
    return began, goes_on


async def test_a_poll_whose_load_is_under_way_gets_its_response_after_the_doubt(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await ended_before_the_restart(path)
    async with running(path) as world:
        began, goes_on = hold_loads(world, monkeypatch)
        listing = make_poll(running=frozenset({key}))
        polling = asyncio.ensure_future(world.engine.sessions.work(listing))
        await began.wait()

        world.engine._loop.suspend()
        world.engine._loop.resume()
        goes_on.set()
        await world.engine.flush()
        await one_pass()

        assert polling.done()
        assert (await polling).revoked == [key]
