"""Invocations in a cluster run once, whatever becomes of their jobs."""

from __future__ import annotations

import asyncio

import pytest

from schedo.core.leases import AttemptResult, Completed
from schedo.core.shards import SHARDS
from schedo.errors import NotFound, Unavailable
from tests.cluster.conftest import Cluster
from tests.cluster.members import running_cluster
from tests.cluster.workers import HandWorker, lease_of
from tests.passes import one_pass


async def test_a_job_that_has_failed_with_the_type_no_capacity_is_not_invoked_again(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    ran, idle = HandWorker("ran", slots=1), HandWorker("idle", slots=1)
    polling = ran.begin_poll(second)
    await second.engine.flush()
    invoking = asyncio.ensure_future(second.post("/v1/invoke", {"task": "demo", "wait": "5s"}))
    lease = lease_of(await polling)
    waiting = idle.begin_poll(first)
    await first.engine.flush()

    error = {"type": "no-capacity", "message": "the disk is full"}
    await ran.poll(second, results=[{"lease": lease, "outcome": "failed", "error": error}])
    reply = await invoking

    assert (reply.status, reply.code) == (502, "invocation-failed")
    assert "the disk is full" in reply.json()["detail"]
    assert not waiting.done()
    waiting.cancel()


async def test_an_invocation_with_a_large_payload_that_is_not_kept_runs_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    for world in (first, second):
        world.attach_worker()
        await world.engine.flush()

    async def load_nothing(_: int) -> bytes:
        raise NotFound("the job is gone")

    body = {"task": "demo", "payload": "x" * 100_000, "keep": {"completed": "0s"}}
    invoking = asyncio.ensure_future(second.post("/v1/invoke", body))
    lease = await second.worker.first()
    await second.engine.flush()
    monkeypatch.setattr(second.engine.store, "load_payload", load_nothing)
    second.engine.report(AttemptResult(lease.key, Completed(b"3")))
    reply = await invoking

    assert (reply.status, reply.json()["result"]) == (200, 3)
    await one_pass()
    assert not first.worker.leases


async def test_an_invocation_passes_a_server_that_has_no_shard_yet() -> None:
    async with running_cluster(3) as (everything, [first, joining, third]):
        everything.give([each for each in range(SHARDS) if joining.cluster.is_mine(each)], 1)
        moved = Unavailable("the shard of this request has just moved")
        joining.engine._loop.find_refusal = lambda _: moved
        third.attach_worker(slots=1)
        await third.engine.flush()

        found = [await first.post("/v1/invoke", {"task": "demo", "wait": 0}) for _ in range(2)]

        assert found[0].status == 201
        assert (found[1].status, found[1].code) == (503, "no-capacity")
        assert found[1].json()["considered"] == 1
