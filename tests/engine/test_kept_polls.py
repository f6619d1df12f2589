"""A server of a cluster whose shards change leaves the polls of its idle workers open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schedo.core.limits import HOUR, SECOND
from schedo.core.model import ReadyKey
from schedo.core.worker_messages import PollResponse
from schedo.core.worker_pool import WorkerSpec
from tests.core.remote_site import make_poll
from tests.engine.test_ownership import Shards, sharing
from tests.engine.world import World

WAIT_US = 30 * SECOND
REMOTE = WorkerSpec("a", 1, frozenset({"remote"}))


async def begin_poll(world: World) -> asyncio.Task[PollResponse]:
    """Return the open poll of a worker that runs nothing."""
    request = make_poll(spec=REMOTE, running=frozenset(), max_leases=None, wait_s=WAIT_US / SECOND)
    poll = asyncio.create_task(world.engine.sessions.work(request))
    while world.engine.sessions.list()[-1].name != "a":
        await world.engine.flush()
    return poll


async def restart(world: World, shards: Shards) -> None:
    await world.engine._loop.restart(shards.change_shards)
    await world.engine.flush()


async def test_an_idle_worker_waits_on_while_the_shards_change(path: Path) -> None:
    async with sharing(path) as (world, shards):
        poll = await begin_poll(world)

        await restart(world, shards)
        assert not poll.done()
        job = await world.submit(task="remote")

        assert [lease.key.job_id for lease in (await poll).leases] == [job.id]


async def test_a_worker_that_disconnects_while_the_shards_change_gets_no_job(path: Path) -> None:
    async with sharing(path) as (world, shards):
        poll = await begin_poll(world)
        change = shards.change_shards

        async def change_and_disconnect() -> None:
            poll.cancel()
            await asyncio.wait([poll])
            await change()

        await world.engine._loop.restart(change_and_disconnect)
        job = await world.submit(task="remote")
        await world.engine.flush()

        response = await world.engine.sessions.work(
            make_poll(spec=REMOTE, running=frozenset(), max_leases=None)
        )
        assert [lease.key.job_id for lease in response.leases] == [job.id]


async def test_all_polls_end_when_the_change_of_the_shards_fails(path: Path) -> None:
    async with sharing(path) as (world, _):
        poll = await begin_poll(world)

        async def fail() -> None:
            raise RuntimeError("a bug")

        await world.engine._loop.restart(fail)

        assert not (await poll).leases


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
async def test_a_poll_ends_at_its_time_if_the_clock_is_set_while_the_shards_change(
    path: Path, step: int
) -> None:
    async with sharing(path) as (world, shards):
        poll = await begin_poll(world)
        ends_at = world.clock.now() + step + WAIT_US

        async def change_and_set_clock() -> None:
            await shards.change_shards()
            world.clock.step(step)

        await world.engine._loop.restart(change_and_set_clock)
        await world.run_until(ends_at - 1)
        assert not poll.done()
        await world.run_until(ends_at)

        assert not (await poll).leases


async def test_no_job_is_offered_to_other_servers_before_it_is_known_which_workers_wait_on(
    path: Path,
) -> None:
    async with sharing(path) as (world, shards):
        sessions, found = world.engine.sessions, list[dict[ReadyKey, int]]()
        await world.submit(task="remote")

        async def look_and_change() -> None:
            found.append(sessions.find_surplus(1))
            await shards.change_shards()

        assert sessions.find_surplus(1)
        await world.engine._loop.restart(look_and_change)
        await world.engine.flush()

        assert found == [{}]
        assert sessions.find_surplus(1)
