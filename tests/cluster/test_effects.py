"""What a server says of the effect of a request when its own store has failed."""

from __future__ import annotations

import pytest

from schedo.cluster.hops import OWN_PERMISSION, OwnRequest
from schedo.core.model import Schedule
from schedo.errors import StoreError
from tests.cluster.conftest import Cluster
from tests.cluster.test_forwarding import text_of


@pytest.mark.parametrize(("method", "code"), [("GET", "unavailable"), ("POST", "outcome-unknown")])
async def test_a_change_that_another_server_has_got_may_have_been_carried_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, method: str, code: str
) -> None:
    _, first, _ = cluster
    (member,) = first.router.servers.others()

    async def ask_and_fail(*_: object) -> Schedule:
        own = OwnRequest(method, "/v1/queues", "r-1", OWN_PERMISSION)
        await first.router.servers.send(member, "forward", own)
        raise StoreError("away")

    monkeypatch.setattr(first.engine, "pause_schedule", ask_and_fail)
    reply = await first.post(f"/v1/schedules/{text_of(first)}:pause", {})

    assert (reply.status, reply.code) == (503, code)


async def test_the_owner_of_a_shard_says_that_nothing_was_changed(cluster: Cluster) -> None:
    _, first, second = cluster
    second.engine._loop.failure = StoreError("away")

    reply = await first.post(f"/v1/schedules/{text_of(second)}:pause", {})
    second.engine._loop.failure = None

    assert (reply.status, reply.code) == (503, "unavailable")
    assert "has changed nothing" in reply.json()["detail"]
