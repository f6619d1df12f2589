"""Broadcasts in a cluster reach the workers of all servers, each once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster.broadcasting import describe_remote_workers
from schedo.core.changes import IdempotencyRecord
from schedo.core.shards import SHARDS
from schedo.core.worker_messages import WorkerStatus
from schedo.core.worker_pool import PLACE_LABEL, WorkerSpec
from schedo.errors import PeerUnreachable
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, note_home_shards, running_cluster
from tests.cluster.workers import HandWorker, lease_of
from tests.passes import until
from tests.web.world import Reply

BODY = {"task": "warm", "broadcast": True}


def places(reply: Reply) -> list[dict[str, Any]]:
    """Return what the jobs require, in their order."""
    return [item["job"]["requires"] for item in reply.json()["items"]]


async def attach_process(world: MemberWorld) -> None:
    spec = WorkerSpec("process-1", 1, frozenset({"warm"}), labels={PLACE_LABEL: "1"})
    world.engine.attach(spec, world.worker)
    await world.engine.flush()


@pytest.mark.parametrize("asked", [0, 1])
async def test_a_broadcast_makes_one_job_for_each_worker_of_all_servers(
    cluster: Cluster, asked: int
) -> None:
    _, *worlds = cluster
    for world in worlds:
        await attach_process(world)
        await HandWorker("everywhere").poll(world)
    await HandWorker("first").poll(worlds[0])
    await HandWorker("second").poll(worlds[1])

    reply = await worlds[asked].post("/v1/jobs", BODY)

    place = {"labels": {PLACE_LABEL: "1"}}
    everywhere, one, two = ({"worker": name} for name in ("everywhere", "first", "second"))
    assert (reply.status, places(reply)) == (207, [everywhere, one, place, two, place])
    counts = [len((await world.get("/v1/jobs")).json()["items"]) for world in worlds]
    assert sorted(counts) == [1, 4]  # each store here has the jobs of its server only


async def test_a_remote_worker_gets_its_job_wherever_it_polls(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker("far")
    await worker.poll(second)

    await first.post("/v1/jobs", BODY)

    assert lease_of(await worker.begin_poll(second))


async def test_workers_of_one_server_only_are_enough(cluster: Cluster) -> None:
    _, first, second = cluster
    await attach_process(second)

    reply = await first.post("/v1/jobs", BODY)

    assert (reply.status, places(reply)) == (207, [{"labels": {PLACE_LABEL: "1"}}])


async def test_a_broadcast_without_any_worker_is_refused(cluster: Cluster) -> None:
    _, first, second = cluster
    await HandWorker("other").poll(second, tasks=["other"])

    reply = await first.post("/v1/jobs", BODY)

    assert (reply.status, reply.code) == (422, "unsatisfiable")


async def test_a_broadcast_that_is_repeated_with_its_key_makes_no_more_jobs(
    cluster: Cluster,
) -> None:
    _, *worlds = cluster
    for world in worlds:
        await attach_process(world)
    key = [("idempotency-key", "k")]

    replies = [await world.post("/v1/jobs", BODY, key) for world in (*worlds, *worlds)]

    assert len({reply.body for reply in replies}) == 1
    counts = [len((await world.get("/v1/jobs")).json()["items"]) for world in worlds]
    assert counts == [1, 1]


def share_records(worlds: Sequence[MemberWorld], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all servers find the records of all stores, as in one database."""
    stores = [world.engine.store for world in worlds]
    find_in = [store.find_idempotency_record for store in stores]

    async def find(scope: str, fingerprint: bytes) -> IdempotencyRecord | None:
        found = [await each(scope, fingerprint) for each in find_in]
        return found[0] or found[1]

    for store in stores:
        monkeypatch.setattr(store, "find_idempotency_record", find)


async def test_a_broadcast_that_is_repeated_at_the_next_owner_of_its_key_makes_no_more_jobs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    share_records((first, second), monkeypatch)
    for world in (first, second):
        await attach_process(world)
    await HandWorker("far").poll(second)
    replies = []

    for owner in (1, 2):
        everything.give(range(SHARDS), owner)
        replies.append(await first.post("/v1/jobs", BODY, [("idempotency-key", "k")]))

    assert (replies[0].status, replies[1].json()) == (207, replies[0].json())
    counts = [len((await world.get("/v1/jobs")).json()["items"]) for world in (first, second)]
    assert counts == [2, 1]


async def test_a_broadcast_that_another_server_makes_while_this_one_lists_workers_is_made_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    share_records((first, second), monkeypatch)
    await HandWorker("far").poll(second)
    list_workers, replies = first.router.list_remote_workers, list[Reply]()

    async def list_late() -> list[WorkerStatus]:
        monkeypatch.setattr(first.router, "list_remote_workers", list_workers)
        everything.give(range(SHARDS), 2)
        replies.append(await second.post("/v1/jobs", BODY, [("idempotency-key", "k")]))
        everything.give(range(SHARDS), 1)
        return await list_workers()

    monkeypatch.setattr(first.router, "list_remote_workers", list_late)
    everything.give(range(SHARDS), 1)
    replies.append(await first.post("/v1/jobs", BODY, [("idempotency-key", "k")]))

    assert (replies[0].status, replies[1].json()) == (207, replies[0].json())
    counts = [len((await world.get("/v1/jobs")).json()["items"]) for world in (first, second)]
    assert counts == [0, 1]


async def test_a_broadcast_that_is_repeated_makes_no_job_for_later_workers_of_the_same_servers(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await attach_process(first)
    await attach_process(second)
    await HandWorker("early").poll(second)
    key = [("idempotency-key", "k")]
    before = await first.post("/v1/jobs", BODY, key)
    await HandWorker("late").poll(first)
    second.engine.attach(WorkerSpec("process-2", 1, frozenset({"warm"})), second.worker)

    again = await second.post("/v1/jobs", BODY, key)

    assert (again.status, again.body) == (207, before.body)


async def test_a_broadcast_names_the_servers_that_do_not_respond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster(3) as (_, (first, second, third)):
        for world in (first, second, third):
            await attach_process(world)
        send = first.router.servers.peers.send

        async def lose(member: Any, hop: Any, *arguments: Any, **fields: Any) -> HttpResponse:
            if member.name == third.name:
                raise PeerUnreachable("it is gone")
            return await send(member, hop, *arguments, **fields)

        monkeypatch.setattr(first.router.servers.peers, "send", lose)

        reply = await first.post("/v1/jobs", BODY)

        assert (reply.status, len(places(reply))) == (207, 2)
        assert reply.headers["schedo-unreachable"] == third.name


async def test_bad_input_makes_no_part(cluster: Cluster) -> None:
    _, first, second = cluster
    await attach_process(second)

    reply = await first.post("/v1/jobs", {**BODY, "unique": "k"})

    assert reply.status == 422
    assert (await second.get("/v1/jobs")).json()["items"] == []


async def test_a_broadcast_with_a_key_carries_the_shard_of_the_key(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    await HandWorker("far").poll(second)
    found = note_home_shards(first, monkeypatch), note_home_shards(second, monkeypatch)

    for number in range(4):
        reply = await second.post("/v1/jobs", BODY, [("Idempotency-Key", f"key {number}")])
        assert reply.status == 207

    assert [len(home_shards) for each in found for home_shards in each] == [1] * 4


async def test_a_broadcast_without_workers_says_which_servers_it_has_not_asked(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await attach_process(first)
    await first.http.stop(grace_s=0.05)

    reply = await second.post("/v1/jobs", BODY)

    assert (reply.status, reply.code) == (503, "peer-unreachable")
    assert "these servers did not respond: host 1" in reply.json()["detail"]


async def test_a_server_of_the_version_before_reads_the_remote_workers_of_this_one(
    cluster: Cluster,
) -> None:
    first = cluster[1]
    polling = HandWorker().begin_poll(first)
    await until(lambda: first.engine.sessions.list())

    (status,) = msgspec.json.decode(describe_remote_workers(first.app.context).body)

    assert status[0] == "w"
    assert len(status) == 17
    polling.cancel()
