"""A worker that is slow to stop what another server has revoked lists it again in its next poll."""

from __future__ import annotations

import asyncio

import pytest

from schedo.cluster import owner_pace
from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker, result

# So long nothing must come; what is wrong comes within some milliseconds.
WATCHED_S = 0.2


@pytest.fixture
async def stale(cluster: Cluster) -> str:
    """A lease of a job of the first server that the worker does not hold any more."""
    _, first, _ = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await worker.poll(first, results=[result(lease)])
    return f"{lease[:-1]}9"


async def test_a_poll_with_what_another_server_has_revoked_before_waits(
    cluster: Cluster, stale: str
) -> None:
    worker = HandWorker()
    assert (await worker.poll(cluster[2], stale))["revoked"] == [stale]

    polling = worker.begin_poll(cluster[2], stale)
    await asyncio.wait([polling], timeout=WATCHED_S)

    assert not polling.done()
    polling.cancel()


async def test_a_response_lists_what_was_revoked_before_the_wait(
    cluster: Cluster, stale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_pace, "LOOK_S", 0.0)  # so it takes many turns
    second = cluster[2]
    worker = HandWorker()
    await worker.poll(second, stale)
    polling = worker.begin_poll(second, stale)
    await asyncio.wait([polling], timeout=WATCHED_S)

    await second.submit(task="demo")

    answer = await polling
    assert (len(answer["leases"]), answer["revoked"]) == (1, [stale])


async def test_what_is_newly_revoked_ends_the_wait(cluster: Cluster, stale: str) -> None:
    second = cluster[2]
    worker = HandWorker(slots=3)
    await worker.poll(second, stale)

    answer = await worker.begin_poll(second, stale, f"{stale}9")

    assert {*answer["revoked"]} == {stale, f"{stale}9"}


async def test_a_gateway_forgets_a_worker_that_has_stopped_what_was_revoked(
    cluster: Cluster, stale: str
) -> None:
    second = cluster[2]
    worker = HandWorker()
    await worker.poll(second, stale)
    assert "w" in second.router._gateway._workers

    await worker.poll(second)

    assert "w" not in second.router._gateway._workers
