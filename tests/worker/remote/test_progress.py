"""What a handler says while it runs."""

from __future__ import annotations

import asyncio

from schedo.client.async_transport import AsyncTransport
from schedo.client.messages import parse_address
from schedo.core.leases import Completed
from schedo.worker.remote.poller import Poller
from tests.worker.remote.conftest import Hands, Talk
from tests.worker.remote.server import LEASE, WorkServer, lease_of


async def test_what_a_handler_says_in_a_moment_is_told_at_once(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    hands.says = [
        {"percent": 10, "log": "first"},
        {"percent": 40, "message": "page\0 4"},
        {"log": "second"},
    ]
    (await server.asked()).answer(leases=[lease_of()])
    await server.asked()

    told = await server.told()

    assert told.body["progress"] == [
        {"lease": LEASE, "percent": 40, "log": "first\nsecond", "message": "page\ufffd 4"}
    ]
    assert "running" not in told.body


async def test_progress_of_an_attempt_that_has_ended_is_not_told(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    hands.says = [{"percent": 10}]
    (await server.asked()).answer(leases=[lease_of()])
    call = await hands.called()
    await server.asked()
    hands.end(call, Completed())
    told = await server.told()
    told.answer()

    assert "progress" not in told.body
    assert server.is_silent


async def test_a_server_that_is_silent_is_asked_again(server: WorkServer, hands: Hands) -> None:
    transport = AsyncTransport(parse_address(server.url, None), 0.05)
    talk = Talk(Poller(transport, {"worker": "w1", "slots": 1}, {"work": hands}, lambda: 0.0))

    first = await server.asked()
    second = await server.asked()

    assert first.body == second.body
    talk.ended.cancel()
    await asyncio.gather(talk.ended, return_exceptions=True)
    await transport.close()
