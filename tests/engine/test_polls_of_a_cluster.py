"""Polls of remote workers that come while the shards of their server change."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.core.worker_messages import PollResponse
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import Disk, Server, live, polling, spec, submitted


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
