"""Polls of workers at servers that they do not poll themselves, in rare situations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster import gateway, relayed_polls, surplus
from schedo.cluster.work_parts import read_poll
from schedo.core.limits import SECOND
from schedo.core.states import State
from schedo.errors import Overloaded
from schedo.protocol.leases import parse_lease
from schedo.testing.clock import VirtualClock
from schedo.web.bytes_in_flight import Claim
from schedo.web.http import Request
from tests.cluster.conftest import Cluster
from tests.cluster.test_held_polls import Way, is_polled, poll_both
from tests.cluster.test_lost_leases import IN_FLIGHT_S, pass_time
from tests.cluster.test_relayed_polls import get_full
from tests.cluster.test_unheard_workers import expect_new_start, look
from tests.cluster.workers import HandWorker, holds, lease_of, result
from tests.passes import until

COMES_WITHIN_S = 5.0  # much less than the wait of a poll


async def test_a_recalled_lease_costs_a_worker_that_reports_to_the_owner_no_attempt(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    way = Way(second, monkeypatch)
    worker = HandWorker(slots=2)
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    kept = lease_of(await polling)
    polling = worker.begin_poll(second, kept)
    await until(lambda: is_polled(first))
    way.is_open.clear()
    way.kept.clear()
    await first.submit(task="demo")
    await way.kept.wait()
    await second.submit(task="own")  # it has no room left, so the second lease goes back
    own = lease_of(await polling)

    await worker.ask(first, running=[kept, own], max_leases=0)  # a heartbeat
    way.is_open.set()
    await until(lambda: len(first.engine.sessions.held_by("w")) == 1)
    await pass_time(cluster, 6)  # the next heartbeat comes after 10 s

    job = await first.engine.get(parse_lease(kept).job_id)
    assert (job.state, job.attempt, job.losses) == (State.RUNNING, 1, 0)
    assert holds(first, kept)


async def test_a_lost_lease_starts_again_although_a_gateway_polls_for_its_worker(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    # Jobs of the first server come to workers of the second one, so that polls it for all of them.
    other = await poll_both(cluster, HandWorker("v"))
    worker = HandWorker(slots=1)
    lost = await worker.take(first, task="demo")  # say it never came
    polling = worker.begin_poll(second)  # which a load balancer sends there
    await until(lambda: is_polled(first) and is_polled(second))
    await pass_time(cluster, IN_FLIGHT_S + 1)

    await look(cluster)
    other.cancel()

    await expect_new_start(cluster, worker, polling, lost)


async def test_a_full_worker_that_polls_the_owner_itself_gets_no_lease_for_a_slot_that_is_taken(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster[1]
    parts = first.router._gateway._parts
    own = await get_full(cluster, monkeypatch, lambda: "w" not in parts._polls)
    await until(lambda: first.engine.sessions.held_by("w"))

    answer = await HandWorker(slots=1).poll(first, own)  # through a load balancer

    assert answer["leases"] == []


async def test_a_worker_is_polled_for_although_others_had_no_job_while_its_results_were_stored(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    own = await worker.take(second, task="own")
    monkeypatch.setattr(relayed_polls, "HELD_S", 0.3)
    monkeypatch.setattr(surplus, "GIVES_S", 0.0)
    other = await poll_both(cluster, HandWorker("v"))
    commit = second.engine.store.commit

    async def commit_late(changes: Any) -> Any:
        # A poll of another worker ends at the first server, which has had no job for it.
        await until(lambda: not second.router._gateway._surplus_of_others.is_any)
        return await commit(changes)

    monkeypatch.setattr(second.engine.store, "commit", commit_late)
    polling = asyncio.create_task(worker.poll(second, results=[result(own)], wait=20))
    await until(lambda: is_polled(second))
    other.cancel()
    await asyncio.wait([other])

    await first.submit(task="demo")

    async with asyncio.timeout(COMES_WITHIN_S):
        assert lease_of(await polling)


async def test_a_poll_that_was_being_read_when_the_one_before_ended_gets_jobs_of_other_servers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    before = worker.begin_poll(second)
    await until(lambda: is_polled(second))
    is_read, may_go_on = asyncio.Event(), asyncio.Event()

    async def read_in_steps(request: Request) -> Any:
        """Read it as a request whose description is large."""
        is_read.set()
        await may_go_on.wait()
        return await read_poll(request)

    monkeypatch.setattr(gateway, "read_poll", read_in_steps)
    polling = worker.begin_poll(second)
    await is_read.wait()
    known = second.router._gateway._workers.note_request("w")
    before.cancel()  # the worker has given it up
    await until(lambda: known.poll is None)
    await asyncio.wait([before])
    may_go_on.set()
    await until(lambda: is_polled(second))

    await first.submit(task="demo")

    async with asyncio.timeout(COMES_WITHIN_S):
        assert lease_of(await polling)


async def test_a_job_starts_at_another_server_while_its_owner_has_little_memory_for_responses(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    take = Claim.take

    async def claim_late(
        self: Claim, size: int, wait_s_max: float | None = None, *, is_body: bool = False
    ) -> None:
        """Wait in vain, for as long as may be."""
        if size < 100_000 or wait_s_max is None:
            await take(self, size, wait_s_max, is_body=is_body)
            return
        for world in (first, second):
            clock = world.engine.clock
            assert isinstance(clock, VirtualClock)
            await clock.run_until(world.engine, clock.now() + round(wait_s_max * SECOND) + 5_000)
        raise Overloaded("no memory")

    monkeypatch.setattr(Claim, "take", claim_late)
    polling = HandWorker(slots=120).begin_poll(second)
    await first.post("/v1/jobs:batch", [{"task": "demo", "payload": "x" * 900}] * 120)

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["leases"]


async def test_a_reservation_does_not_hold_the_poll_of_a_worker_that_does_not_wait(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=4)
    polling = await poll_both(cluster, worker)
    await first.post("/v1/reservations", {"task": "demo", "count": 1, "ttl": 60})
    polling.cancel()
    await asyncio.wait([polling])
    await first.submit(task="demo")
    assert (await worker.poll(second))["leases"]

    async with asyncio.timeout(1.0):
        await worker.poll(second)


async def test_no_two_gateways_give_their_polls_the_same_number(cluster: Cluster) -> None:
    polls = [world.router._gateway._relayed_polls for world in cluster[1:]]

    assert len({next(each._numbers) for each in polls}) == 2
