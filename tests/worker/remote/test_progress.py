"""Progress of running handlers."""

from __future__ import annotations

import asyncio

from schedo.client.async_transport import AsyncTransport
from schedo.client.messages import parse_address
from schedo.core.leases import Completed
from schedo.protocol.work import WorkRequest
from schedo.worker.remote.poller import Poller
from tests.worker.remote.conftest import ManualRunner, RunningPoller, execute
from tests.worker.remote.server import WorkServer, lease_of


async def test_progress_of_an_ended_attempt_is_not_sent(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    runner.says = [{"percent": 10}]
    (await server.next_poll()).answer(leases=[lease_of()])
    call = await runner.called()
    await server.next_poll()
    runner.end(call, Completed())
    told = await server.next_report()
    told.answer()

    assert "progress" not in told.body
    assert server.is_silent


async def test_a_server_that_does_not_respond_is_polled_again(
    server: WorkServer, runner: ManualRunner
) -> None:
    transport = AsyncTransport(parse_address(server.url, None), 0.05)
    running = RunningPoller(
        Poller(transport, WorkRequest(worker="w1", slots=1), execute(runner), lambda: 0.0)
    )

    first = await server.next_poll()
    second = await server.next_poll()

    assert first.body == second.body
    running.ended.cancel()
    await asyncio.gather(running.ended, return_exceptions=True)
    await transport.close()
