"""A worker that an operator wants to leave, and that polls on: it may not know of that."""

from __future__ import annotations

import asyncio

from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker

# So long nothing must come; what is wrong comes within some milliseconds.
WATCHED_S = 0.2


async def test_a_poll_waits_after_the_worker_has_heard_that_it_should_leave(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await second.post("/v1/workers/w:drain")
    assert (await worker.begin_poll(second, lease))["drain"]

    polling = worker.begin_poll(second, lease)
    await asyncio.wait([polling], timeout=WATCHED_S)

    assert not polling.done()
    polling.cancel()


async def test_a_worker_that_should_leave_once_more_hears_that_at_once(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await second.post("/v1/workers/w:drain")
    await worker.poll(second, lease)
    await first.post("/v1/workers/w:uncordon")
    assert not (await worker.poll(second, lease))["drain"]

    await second.post("/v1/workers/w:drain")

    assert (await worker.begin_poll(second, lease))["drain"]
