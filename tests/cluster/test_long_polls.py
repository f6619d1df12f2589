"""Workers that wait at one server for longer than another one holds the request for its surplus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import surplus
from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker, lease_of
from tests.passes import one_pass

COMES_WITHIN_S = 2.0


class Requests:
    """Counts the requests of a server for the surplus of another one, none of which is held."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._send = cluster[2].router.servers.send
        monkeypatch.setattr(surplus, "QUESTION_HELD_S", 0.0)
        monkeypatch.setattr(surplus, "NOT_HELD_S", 0.0)
        monkeypatch.setattr(cluster[2].router.servers, "send", self.send)

    async def send(self, member: Any, purpose: Any, *arguments: Any) -> HttpResponse:
        self.count += purpose == "surplus"
        return await self._send(member, purpose, *arguments)

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(COMES_WITHIN_S):
            while self.count < count:
                await one_pass()


@pytest.fixture
def requests(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(cluster, monkeypatch)


async def test_a_worker_that_waits_for_long_gets_a_job_of_another_server(
    cluster: Cluster, requests: Requests
) -> None:
    _, first, second = cluster
    polling = HandWorker().begin_poll(second)
    await requests.reach(3)

    async with asyncio.timeout(COMES_WITHIN_S):
        await first.submit(task="demo")
        assert lease_of(await polling)


async def test_a_server_whose_workers_have_gone_asks_for_nothing_any_more(
    cluster: Cluster, requests: Requests
) -> None:
    second = cluster[2]
    polling = HandWorker().begin_poll(second)
    await requests.reach(3)

    polling.cancel()

    async with asyncio.timeout(COMES_WITHIN_S):
        while second.router._gateway._surplus_of_others._questions:
            await one_pass()
