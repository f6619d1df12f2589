"""A worker that is slow to stop an attempt, and runs another one for another server."""

from __future__ import annotations

import asyncio

import pytest

from schedo.cluster import owner_pace
from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker

# So long nothing must come; what is wrong comes within some milliseconds.
WATCHED_S = 0.2


@pytest.mark.parametrize("stopped", [0, 1])
async def test_a_poll_waits_after_the_worker_has_got_the_stop_of_either_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, stopped: int
) -> None:
    monkeypatch.setattr(owner_pace, "LOOK_S", 0.0)  # so it takes many turns
    _, first, second = cluster
    worker = HandWorker()
    leases = [await worker.take(each, task="demo") for each in (second, first)]
    await second.post(f"/v1/jobs/{leases[stopped][:13]}:cancel")
    stop = {"lease": leases[stopped], "reason": "cancel"}
    assert (await worker.begin_poll(second, *leases))["stop"] == [stop]

    polling = worker.begin_poll(second, *leases)
    await asyncio.wait([polling], timeout=WATCHED_S)

    assert not polling.done()
    polling.cancel()
