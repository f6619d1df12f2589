"""Which worker of a gateway gets a job of another server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster.work_parts import PartResponse
from schedo.cluster.worker_call import WorkerCall
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.workers import HandWorker, lease_of, result
from tests.passes import one_pass

ENDS_WITHIN_S = 2.0


def waits(world: MemberWorld, name: str) -> bool:
    """Whether the poll of the worker waits here."""
    polls = world.router._gateway._workers.list_polls()
    return any(each.name == name and each.is_here for each in polls)


async def test_a_job_goes_to_a_worker_that_waits_and_not_to_one_whose_results_are_on_their_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    busy, idle = HandWorker("busy"), HandWorker("idle")
    polling = busy.begin_poll(second)
    await first.submit(task="demo")
    lease = lease_of(await polling)
    sender, are_delivered = second.router._gateway._sender, asyncio.Event()
    ask = sender.ask

    async def ask_later(call: WorkerCall, *part: Any) -> PartResponse | None:
        if call.name == "busy":
            await are_delivered.wait()
        return await ask(call, *part)

    monkeypatch.setattr(sender, "ask", ask_later)
    reporting = asyncio.create_task(busy.poll(second, results=[result(lease)], wait=20))
    waiting = idle.begin_poll(second)
    async with asyncio.timeout(ENDS_WITHIN_S):
        while not waits(second, "idle"):
            await one_pass()

        await first.submit(task="demo")

        assert lease_of(await waiting)
    are_delivered.set()
    reporting.cancel()
