"""Offers, and the end of a session."""

from __future__ import annotations

from schedo.core.leases import Completed
from tests.worker.remote.conftest import ManualRunner, RunningPoller
from tests.worker.remote.server import LEASE, WorkServer, lease_of


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

    assert {**poll.body, "results": poll.results} == {
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
