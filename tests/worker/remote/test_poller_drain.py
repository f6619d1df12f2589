"""Offers, and how a session ends."""

from __future__ import annotations

import asyncio

from schedo.core.leases import Completed
from tests.worker.remote.conftest import Hands, Talk
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


async def test_a_bid_starts_once_the_server_knows_that_it_is_accepted(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    (await server.asked()).answer(leases=[lease_of(offer=True)])

    ask = await server.asked()
    assert (ask.body["accept"], ask.body["running"]) == ([LEASE], [LEASE])
    assert ask.body["wait"] == 0.0
    assert hands.calls.empty()
    ask.answer()

    assert (await hands.called()).lease.key == (33, 1, 7)
    assert (await server.asked()).body["running"] == [LEASE]


async def test_a_bid_that_went_to_another_does_not_start(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    (await server.asked()).answer(leases=[lease_of(offer=True)])
    (await server.asked()).answer(revoked=[LEASE])

    assert (await server.asked()).body["running"] == []
    assert hands.calls.empty()


async def test_a_bid_beyond_the_slots_is_rejected(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    first, second, third = map(lease_text, (1, 2, 3))
    (await server.asked()).answer(
        leases=[
            lease_of(lease=first),
            *(lease_of(lease=each, offer=True) for each in (second, third)),
        ]
    )

    ask = await server.asked()

    assert ask.body["accept"] == [second]
    assert ask.body["reject"] == [{"lease": third, "reason": "no free slot"}]


async def test_a_drain_asks_for_no_more_and_gives_back_what_still_comes(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    waiting = await server.asked()

    talk.session.drain()
    ask = await server.asked()
    await asyncio.wait_for(waiting.gone.wait(), 10)

    assert (ask.body["draining"], ask.body["max_leases"]) == (True, 0)
    ask.answer(leases=[lease_of()])
    assert (await server.asked()).results == [{"lease": LEASE, "outcome": "released"}]
    assert hands.calls.empty()


async def test_a_session_ends_when_all_is_told(
    server: WorkServer, talk: Talk, hands: Hands
) -> None:
    (await server.asked()).answer(leases=[lease_of()])
    call = await hands.called()
    await server.asked()
    talk.session.drain()
    await server.asked()
    hands.end(call, Completed())
    tell = await server.told()

    talk.session.leave()
    tell.drop()
    ask = await server.asked()
    while not ask.results:  # what waited when it left was cut short
        ask = await server.asked()

    assert ask.body == {
        **{
            "worker": "w1",
            "session": "s1",
            "slots": 2,
            "draining": True,
            "max_leases": 0,
            "offers": True,
        },
        **{"running": [], "wait": 0.0, "results": [{"lease": LEASE, "outcome": "completed"}]},
    }
    ask.drop()
    (await server.asked()).answer()
    await talk.end()
