"""Polls of remote workers that come while the shards of their server change."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.core.ids import ID_MAX
from schedo.core.model import LeaseKey
from schedo.core.worker_messages import PollResponse
from schedo.errors import StoreError
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import Disk, Server, disconnect, live, polling, spec, submitted


def test_a_poll_that_comes_while_the_shards_change_is_carried_out_afterwards() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        engine, polls = server.engine._loop, list[asyncio.Task[PollResponse]]()
        settle = engine._settle

        async def settle_while_a_poll_comes(last: Any) -> int:
            last_poll = await settle(last)
            polls.append(polling(server, wait_s=60.0))
            await loop.pass_time(0)
            return last_poll

        engine._settle = settle_while_a_poll_comes  # type: ignore[method-assign]
        await engine.restart(lambda: loop.pass_time(0.01))
        await submitted(server, spec(once=True))

        [lease] = (await polls[0]).leases
        assert lease.key.attempt == 1

    live(test)


def test_a_poll_that_has_come_before_ends_when_the_shards_change() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, wait_s=60.0)
        await server.engine.flush()

        await server.engine._loop.restart(lambda: loop.pass_time(0.01))

        assert (await poll).leases == []

    live(test)


def test_a_poll_that_ends_because_a_change_of_shards_has_failed_gets_no_lease() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        polls: list[asyncio.Task[PollResponse]] = []

        async def change() -> None:
            polls.append(polling(server, wait_s=60.0))
            await loop.pass_time(0.001)
            raise StoreError("the session has ended")

        await server.engine._loop.restart(change)
        await asyncio.wait(polls)
        while not server.engine.health().ready:
            await loop.pass_time(0.01)
        await submitted(server, spec(once=True))
        await loop.pass_time(0.1)

        [lease] = (await polling(server, wait_s=60.0)).leases
        assert lease.key.attempt == 1

    live(test)


def test_a_poll_that_waits_for_a_load_takes_no_lease_that_has_left_since() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        engine = server.engine._loop
        job = await submitted(server, spec())
        engine.scheduler.follow_server(server.clock.now(), was_killed=False, last_id=ID_MAX)
        disk.delay_s = 0.05
        old = polling(server, running=frozenset({LeaseKey(5, 1, 0)}))  # of another server
        await loop.pass_time(0)
        await disconnect(old)  # its worker sends another one, which needs no load
        await loop.pass_time(0.001)
        [lease] = (await polling(server, running=frozenset())).leases

        await loop.pass_time(1)

        assert engine.scheduler.held_by("a") == [lease]
        assert (await server.engine.get(job.id)).attempt == 1

    live(test)


def test_a_poll_that_its_worker_gave_up_during_a_load_does_not_end_the_next_one() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        last = server.clock.now()
        server.engine._loop.scheduler.follow_server(last, was_killed=False, last_id=ID_MAX)
        disk.delay_s = 0.05
        old = polling(server, running=frozenset({LeaseKey(5, 1, 0)}))
        await loop.pass_time(0)
        await disconnect(old)
        await loop.pass_time(0.001)
        new = polling(server, running=frozenset(), wait_s=60.0)

        await loop.pass_time(1)

        assert not new.done()
        await submitted(server, spec(once=True))
        [lease] = (await new).leases
        assert lease.key.attempt == 1

    live(test)
