"""The history of a job is the same at each server."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Cluster


async def test_a_job_was_durable_when_its_owner_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later commit of another server, whose clock is 1 ms ahead, says nothing of the job."""
    _, first, second = cluster
    monkeypatch.setattr(second.engine.store, "get_job", first.engine.store.get_job)
    job = await first.submit(delay="1h")
    await second.submit(delay="1h")

    found = [(await each.get(f"/v1/jobs/{job['id']}/history")).json() for each in (first, second)]

    assert found[0]["durable_at"] == job["created_at"]
    assert found[1] == found[0]
