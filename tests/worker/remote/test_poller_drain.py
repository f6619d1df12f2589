"""Offers, and the end of a session."""

from __future__ import annotations

import asyncio

from schedo.core.leases import Completed
from tests.worker.remote.conftest import ManualRunner, RunningPoller
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


async def test_an_offer_starts_when_its_acceptance_is_confirmed(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    (await server.next_poll()).answer(leases=[lease_of(offer=True)])

    poll = await server.next_poll()
    assert (poll.body["accept"], poll.body["running"]) == ([LEASE], [LEASE])
    assert poll.body["wait"] == 0.0
    assert runner.calls.empty()
    poll.answer()

    assert (await runner.called()).lease.key == (33, 1, 7)
    assert (await server.next_poll()).body["running"] == [LEASE]


async def test_a_revoked_offer_does_not_start(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    (await server.next_poll()).answer(leases=[lease_of(offer=True)])
    (await server.next_poll()).answer(revoked=[LEASE])

    assert (await server.next_poll()).body["running"] == []
    assert runner.calls.empty()


async def test_an_offer_beyond_the_slots_is_rejected(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    first, second, third = map(lease_text, (1, 2, 3))
    (await server.next_poll()).answer(
        leases=[
            lease_of(lease=first),
            *(lease_of(lease=each, offer=True) for each in (second, third)),
        ]
    )

    poll = await server.next_poll()

    assert poll.body["accept"] == [second]
    assert poll.body["reject"] == [{"lease": third, "reason": "no free slot"}]


async def test_a_draining_worker_stops_polling_and_releases_late_leases(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    waiting = await server.next_poll()

    running.poller.drain()
    poll = await server.next_poll()
    await asyncio.wait_for(waiting.gone.wait(), 10)

    assert (poll.body["draining"], poll.body["max_leases"]) == (True, 0)
    poll.answer(leases=[lease_of()])
    assert (await server.next_poll()).results == [{"lease": LEASE, "outcome": "released"}]
    assert runner.calls.empty()


async def test_a_session_ends_when_its_outbox_is_empty(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    (await server.next_poll()).answer(leases=[lease_of()])
    call = await runner.called()
    await server.next_poll()
    running.poller.drain()
    await server.next_poll()
    runner.end(call, Completed())
    report = await server.next_report()

    running.poller.leave()
    report.drop()
    poll = await server.next_poll()
    while not poll.results:  # a poll from before the drain has no results
        poll = await server.next_poll()

    assert poll.body == {
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
    poll.drop()
    (await server.next_poll()).answer()
    await running.end()
