"""Polls and reports of the poller, also across lost connections."""

from __future__ import annotations

import pytest

from schedo.errors import Conflict
from tests.worker.remote.conftest import ManualRunner, RunningPoller
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


async def begin(server: WorkServer, runner: ManualRunner, *leases: str) -> None:
    """Give these leases to the worker and return its next poll."""
    poll = await server.next_poll()
    poll.answer(leases=[lease_of(lease=lease) for lease in leases])


async def test_an_immediate_result_is_sent_with_the_next_poll(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    runner.result = b"1"
    await begin(server, runner, LEASE)

    poll = await server.next_poll()

    assert (len(poll.results), poll.body["running"]) == (1, [])
    assert server.is_silent


async def test_results_of_a_full_worker_are_sent_with_the_next_poll(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    runner.result = b"1"
    await begin(server, runner, lease_text(1), lease_text(2))

    poll = await server.next_poll()

    assert len(poll.results) == 2
    assert poll.body["running"] == []
    assert server.is_silent


async def test_a_result_waits_for_an_unreachable_server(
    server: WorkServer, running: RunningPoller, runner: ManualRunner
) -> None:
    runner.result = b"1"
    await begin(server, runner, lease_text(1), lease_text(2))
    (await server.next_poll()).drop()

    poll = await server.next_poll()

    assert len(poll.results) == 2


async def test_a_worker_that_is_replaced_ends(server: WorkServer, running: RunningPoller) -> None:
    (await server.next_poll()).answer()
    (await server.next_poll()).refuse(409, "worker-replaced", "another process is worker w1 now")

    with pytest.raises(Conflict, match="another process"):
        await running.end()
