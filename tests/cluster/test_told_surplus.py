"""A server does not say again which jobs it has while workers are about to ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import msgspec
import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import surplus
from schedo.cluster.client_request import ClientRequest
from schedo.cluster.surplus import Found, OwnSurplus
from schedo.core.model import ReadyKey
from schedo.web.http import Response
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.workers import HandWorker, lease_of
from tests.passes import one_pass

HEARD_WITHIN_S = 1.0


class SlowGateway:
    """A server whose workers ask other servers for jobs when the test lets them."""

    def __init__(self, world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard = 0  # how often another server has said that it has jobs
        self.may_ask = asyncio.Event()
        gateway = world.router._gateway
        self._wake, self._send = gateway._wake, world.router.servers.peers.send
        monkeypatch.setattr(gateway._surplus_of_others, "_wake", self._count)
        monkeypatch.setattr(world.router.servers.peers, "send", self._send_later)

    def _count(self, no: int, found: Found) -> Set[ReadyKey]:
        self.heard += 1
        return self._wake(no, found)

    async def _send_later(
        self, member: Any, hop: Any, *arguments: Any, **fields: Any
    ) -> HttpResponse:
        if hop.purpose == "work":
            await self.may_ask.wait()
        return await self._send(member, hop, *arguments, **fields)

    async def until_heard(self, count: int) -> None:
        async with asyncio.timeout(HEARD_WITHIN_S):
            while self.heard < count:
                await one_pass()


async def until_asked(world: MemberWorld) -> None:
    """Return when the server holds a question for its surplus."""
    async with asyncio.timeout(HEARD_WITHIN_S):
        while not world.router._gateway._questions._own_surplus._questions:
            await one_pass()


async def test_jobs_are_named_once_until_a_worker_has_asked_for_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "NAMED_S", 60.0)
    _, first, second = cluster
    gateway = SlowGateway(second, monkeypatch)
    polls = [HandWorker(name, slots=1).begin_poll(second) for name in ("a", "b")]
    await first.submit(task="demo")
    await gateway.until_heard(1)
    await until_asked(first)

    await first.submit(task="demo")
    await first.engine.flush()
    assert gateway.heard == 1

    gateway.may_ask.set()
    assert all([lease_of(await poll) for poll in polls])
    assert gateway.heard == 2


async def test_jobs_are_named_again_when_no_worker_asks_for_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "NAMED_S", 0.001)
    _, first, second = cluster
    gateway = SlowGateway(second, monkeypatch)
    polling = HandWorker().begin_poll(second)

    await first.submit(task="demo")
    await gateway.until_heard(2)

    gateway.may_ask.set()
    assert lease_of(await polling)


class OlderOwner:
    """The servers as those of the version before, which say the same again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.was_asked_again = asyncio.Event()
        respond = OwnSurplus.respond

        async def respond_as_before(own: OwnSurplus, asking: ClientRequest) -> Response:
            self.asked += 1
            if self.asked == 2:
                self.was_asked_again.set()
            own._named.clear()
            response = await respond(own, asking)
            found = msgspec.json.decode(response.body, type=Found)
            return response._replace(body=msgspec.json.encode({"ready": found.ready}))

        monkeypatch.setattr(OwnSurplus, "respond", respond_as_before)


async def test_a_server_of_the_version_before_is_asked_again_after_a_pause(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "TAKING_S", 60.0)
    _, first, second = cluster
    gateway, owner = SlowGateway(second, monkeypatch), OlderOwner(monkeypatch)
    polling = HandWorker().begin_poll(second)
    await first.submit(task="demo")
    await gateway.until_heard(1)

    gateway.may_ask.set()

    assert lease_of(await polling)
    assert owner.asked == 1


async def test_a_server_that_repeats_what_no_worker_takes_is_asked_less_and_less(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    owner = OlderOwner(monkeypatch)
    monkeypatch.setattr(surplus._Known, "skipped", [])  # what it shall skip, it says again
    await first.submit(task="rare")
    polling = HandWorker(tasks=["demo"]).begin_poll(second)

    await owner.was_asked_again.wait()
    await asyncio.wait([polling], timeout=0.3)

    assert owner.asked <= 10  # after 2, 2, 4, 8 ms and so on
    await first.submit(task="demo")
    assert lease_of(await polling)
