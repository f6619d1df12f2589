"""Several servers with jobs for one worker, of which one does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from schedo.client.messages import HttpResponse
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.workers import HandWorker

COMES_WITHIN_S = 2.0  # a silent server is given up after 3 s


class SilentWay:
    """The way of one server to another one that gets no response to questions for jobs."""

    def __init__(self, world: MemberWorld, silent: MemberWorld) -> None:
        self._send, self._silent = world.router.servers.peers.send, silent.name
        self.asked: list[str] = []  # the servers that were asked for jobs, in this order

    async def send(self, member: Any, hop: Any, *arguments: Any, **fields: Any) -> HttpResponse:
        if hop.purpose == "work":
            self.asked.append(member.name)
            if member.name == self._silent:
                await asyncio.get_running_loop().create_future()
        return await self._send(member, hop, *arguments, **fields)


@asynccontextmanager
async def two_surpluses(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[list[MemberWorld], SilentWay]]:
    """Run three servers; the third one knows that both others have a job, and one is silent."""
    async with running_cluster(3) as (_, worlds):
        first, second, third = worlds
        way = SilentWay(third, first)
        monkeypatch.setattr(third.router.servers.peers, "send", way.send)
        await HandWorker("other").poll(third, tasks=["other"])
        await first.submit(task="demo")
        await second.submit(task="demo")
        known = third.router._gateway._surplus_of_others._known
        while not (len(known) == 2 and all(each.is_taken for each in known.values())):
            await third.engine.flush()
        yield worlds, way


async def test_a_silent_server_does_not_delay_the_jobs_of_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_surpluses(monkeypatch) as ((_, second, third), way):
        async with asyncio.timeout(COMES_WITHIN_S):
            answer = await HandWorker(slots=2).begin_poll(third)

        assert [lease["task"] for lease in answer["leases"]] == ["demo"]
        assert sorted(way.asked) == ["host 1", "host 2"]
        assert len(second.engine.sessions.held_by("w")) == 1


async def test_a_server_that_was_silent_is_asked_last_for_the_only_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_surpluses(monkeypatch) as ((_, _, third), way):
        worker = HandWorker(slots=1)
        polling = worker.begin_poll(third)
        while not way.asked:
            await third.engine.flush()
        polling.cancel()  # the worker gives it up
        await asyncio.wait([polling])

        async with asyncio.timeout(COMES_WITHIN_S):
            answer = await worker.begin_poll(third)

        assert len(answer["leases"]) == 1
