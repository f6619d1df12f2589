"""The dry run of an invocation says what all servers of a cluster would do."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.worker_pool import WorkerSpec
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.test_unreachable import standing_in, stay_silent
from tests.cluster.workers import HandWorker, lease_of, result
from tests.web.world import Reply


async def dry_run(asked: MemberWorld, **fields: Any) -> Reply:
    reply = await asked.post("/v1/invoke", {"task": "demo", "dry_run": True, **fields})
    assert reply.status == 200, reply
    return reply


def says(reply: Reply) -> list[tuple[str, str, bool]]:
    return [(each["worker"], each["server"], each["ok"]) for each in reply.json()["workers"]]


async def test_an_invocation_would_start_at_another_server_that_has_room(cluster: Cluster) -> None:
    _, first, second = cluster
    first.engine.attach(WorkerSpec("process-1", 1), first.worker)
    second.engine.attach(WorkerSpec("process-1", 1), second.worker)
    await first.submit(task="demo")
    await second.engine.flush()

    for asked in (first, second):
        reply = await dry_run(asked)

        assert reply.json()["would_start"]
        assert reply.json()["text"] == "1 of 2 workers could take it now"
        assert says(reply) == [("process-1", "host 2", True), ("process-1", "host 1", False)]
        assert "refusal" not in reply.json()


async def test_a_worker_that_polls_another_server_counts_once(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker("far", slots=1)
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)
    await worker.poll(second, results=[result(lease)])

    for asked in (first, second):
        reply = await dry_run(asked)

        assert (reply.json()["able"], reply.json()["considered"]) == (1, 1)
        assert says(reply) == [("far", "host 2", True)]


async def test_an_invocation_that_no_server_has_room_for_would_be_refused_as_it_is(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await HandWorker("far", slots=1).take(second, task="demo")

    for asked in (first, second):
        reply = await dry_run(asked)

        refused = await asked.post("/v1/invoke", {"task": "demo"})
        assert reply.json()["refusal"] == refused.code
        assert reply.json()["text"].startswith("0 of 1 workers could take it now; ")
        assert says(reply) == [("far", "host 2", False)]


async def test_no_server_has_room_for_jobs_that_only_two_together_could_take(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    for world in (first, second):
        world.engine.attach(WorkerSpec("process-1", 1), world.worker)
        await world.engine.flush()

    found = (await dry_run(first, count=2)).json()

    refused = await first.post("/v1/invoke", {"task": "demo", "count": 2})
    assert (found["would_start"], found["refusal"], found["able"]) == (False, refused.code, 2)


async def test_a_server_that_does_not_respond_may_have_room(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, _, second = cluster
    monkeypatch.setattr("schedo.cluster.gathering.GATHER_S", 0.05)
    async with standing_in(everything, 1, stay_silent):
        reply = await dry_run(second)

    assert reply.headers["schedo-unreachable"] == "host 1"
    text = "no worker is connected, as far as is known without host 1"
    assert (reply.json()["would_start"], reply.json()["text"]) == (False, text)


async def test_what_is_wrong_with_a_dry_run_is_said(cluster: Cluster) -> None:
    _, first, _ = cluster

    wrong = await first.post("/v1/invoke", {"task": "demo", "dry_run": True, "count": 0})

    assert (wrong.status, wrong.json()["errors"][0]["pointer"]) == (422, "/count")


async def test_a_dry_run_starts_nothing_at_any_server(cluster: Cluster) -> None:
    _, first, second = cluster
    polling = HandWorker("far").begin_poll(second)
    await second.engine.flush()

    await dry_run(first)

    assert [(await each.get("/v1/jobs")).json()["items"] for each in (first, second)] == [[], []]
    await second.submit(task="demo")
    assert lease_of(await polling)
