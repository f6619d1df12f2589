"""Requests that reach a server which does not own what they are about."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster import servers
from schedo.cluster.homes import find_maker
from schedo.core.ids import parse_id
from schedo.core.leases import AttemptResult, Completed
from schedo.core.shards import SHARDS, shard_of
from schedo.errors import NotFound, SchedoError, Unavailable
from schedo.store.cluster import Cluster as ClusterOfStore
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld


def text_of(world: MemberWorld, prefix: str = "name") -> str:
    """Return a text whose shard the server owns."""
    texts = (f"{prefix}-{number}" for number in range(1_000))
    return next(text for text in texts if world.cluster.is_mine(shard_of(text)))


async def has_job(world: MemberWorld, ident: str) -> bool:
    try:
        await world.engine.get(parse_id(ident))
    except NotFound:
        return False
    return True


async def test_a_plain_job_stays_with_the_server_that_was_asked(cluster: Cluster) -> None:
    _, first, second = cluster

    job = await second.submit()

    assert await has_job(second, job["id"])
    assert not await has_job(first, job["id"])


async def test_a_server_that_owns_nothing_yet_lets_another_one_make_the_job(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    everything.give(range(SHARDS), 1)
    first.attach_worker()
    await first.engine.flush()

    job = await second.submit()
    batch = await second.post("/v1/jobs:batch", [{"task": "demo"}, {"task": "demo"}])
    invoked = await second.post("/v1/invoke", {"task": "demo", "wait": 0})

    made = [job, *(item["job"] for item in batch.json()["items"]), invoked.json()]
    assert [await has_job(first, each["id"]) for each in made] == [True] * 4


async def test_a_request_fails_whose_owner_accepts_no_requests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    monkeypatch.setattr(servers, "MOVING_S", 0.0)
    job = await first.submit()
    everything.members[0] = everything.members[0]._replace(url="")

    reply = await second.post(f"/v1/jobs/{job['id']}:cancel")

    assert (reply.status, reply.code) == (503, "peer-unreachable")
    assert "host 1 has what this is about and accepts no requests" in reply.json()["detail"]


async def test_a_server_that_leaves_lets_one_that_stays_make_the_job(cluster: Cluster) -> None:
    everything, first, second = cluster
    everything.leave(2)

    assert await has_job(first, (await second.submit())["id"])
    everything.leave(1)
    assert await has_job(second, (await second.submit())["id"])


async def test_a_job_for_a_server_that_has_just_given_its_last_shard_away_is_made_by_another(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    second.engine._loop.failure = Unavailable("the shard of this request has just moved")

    def find_before(_: object) -> None:
        monkeypatch.setattr(servers, "find_maker", find_maker)
        everything.give(range(SHARDS), 1)

    monkeypatch.setattr(servers, "find_maker", find_before)

    assert await has_job(first, (await second.submit())["id"])


async def test_a_job_sent_to_a_server_that_has_just_given_its_last_shard_away_is_sent_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    everything.give(range(SHARDS), 2)
    second.engine._loop.failure = Unavailable("the shard of this request has just moved")

    def find_after(asked: ClusterOfStore) -> int | None:
        if asked is second.cluster:
            everything.give(range(SHARDS), 1)
        return find_maker(asked)

    monkeypatch.setattr(servers, "find_maker", find_after)

    assert await has_job(first, (await first.submit())["id"])


async def test_a_job_with_a_unique_key_is_made_by_the_owner_of_the_key(cluster: Cluster) -> None:
    _, first, second = cluster
    key = text_of(first)

    made = await second.submit(unique={"key": key})
    again = await first.post("/v1/jobs", {"task": "demo", "unique": key})

    assert await has_job(first, made["id"])
    assert (again.status, again.json()["id"], again.json()["conflict"]) == (200, made["id"], True)


async def test_a_request_with_an_idempotency_key_has_one_effect_wherever_it_is_repeated(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    replies = [
        await world.post("/v1/jobs", {"task": "demo"}, [("Idempotency-Key", f"key {number}")])
        for number in range(8)
        for world in (first, second)
    ]

    ids = [reply.json()["id"] for reply in replies]
    assert ids[::2] == ids[1::2]
    assert len(set(ids)) == 8
    assert all(reply.headers["idempotency-replayed"] == "true" for reply in replies[1::2])


async def test_a_job_of_a_queue_with_a_limit_is_made_by_the_owner_of_the_queue(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    queue = text_of(first, "queue")
    limited = await second.patch(f"/v1/queues/{queue}", {"concurrency": 1})

    job = await second.submit(queue=queue)

    assert limited.status == 200
    assert await has_job(first, job["id"])


async def test_a_unique_key_holds_over_queues_with_a_limit_and_without(cluster: Cluster) -> None:
    _, first, second = cluster
    queue, key = text_of(first, "queue"), text_of(second)
    await second.patch(f"/v1/queues/{queue}", {"concurrency": 1})
    body = {"task": "demo", "unique": key}

    in_limited = await first.submit(queue=queue, unique={"key": key})
    again = [await world.post("/v1/jobs", body) for world in (first, second)]

    assert await has_job(second, in_limited["id"])
    assert [reply.json()["id"] for reply in again] == [in_limited["id"]] * 2
    assert all(reply.json()["conflict"] for reply in again)


@pytest.mark.parametrize(
    ("verb", "state"), [(":cancel", "cancelled"), (":run", "queued"), ("/progress", None)]
)
async def test_a_request_about_a_job_is_carried_out_by_its_owner(
    cluster: Cluster, verb: str, state: str | None
) -> None:
    _, first, second = cluster
    job = await first.submit(delay="1h")
    path = f"/v1/jobs/{job['id']}{verb}"

    reply = await (second.get(path) if state is None else second.post(path))

    assert reply.status == 200, reply
    assert reply.json().get("state") == state


async def test_a_change_a_wait_an_explanation_and_a_deletion_reach_the_owner(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    path = f"/v1/jobs/{(await first.submit(delay='1h'))['id']}"

    changed = await second.patch(path, {"priority": 7})
    why = await second.get(f"{path}/why")
    waited = await second.get(f"{path}/wait?timeout=1ms")
    cancelled = await second.post(f"{path}:cancel")
    retried = await second.post(f"{path}:retry")  # without a body
    await second.post(f"{path}:cancel")
    deleted = await second.send("DELETE", path)

    assert changed.json()["priority"] == 7
    assert why.json()["state"] == "scheduled"
    assert (waited.status, waited.json()["state"]) == (202, "scheduled")
    assert [cancelled.json()["state"], retried.json()["state"]] == ["cancelled", "queued"]
    assert deleted.status == 204
    assert (await second.get(f"{path}/wait")).status == 404


async def test_a_wait_ends_with_the_job_at_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    first.attach_worker()
    waiting = asyncio.ensure_future(
        second.post("/v1/jobs?wait=20s", {"task": "demo", "unique": text_of(first)})
    )

    first.engine.report(AttemptResult((await first.worker.first()).key, Completed(b"7")))

    reply = await waiting
    assert (reply.status, reply.json()["result"]) == (200, 7)


async def test_a_schedule_belongs_to_the_owner_of_its_name(cluster: Cluster) -> None:
    _, first, second = cluster
    path = f"/v1/schedules/{text_of(first)}"

    made = await second.put(path, {"every": "1h", "task": "demo"})
    paused = await second.post(f"{path}:pause", {"note": "why"})
    shown = await second.get(path)
    resumed = await second.post(f"{path}:resume", {})
    run = await second.post(f"{path}:trigger", {})
    here = await first.engine.get_schedule(path.removeprefix("/v1/schedules/"))
    deleted = await second.send("DELETE", path)

    assert (made.status, made.headers["location"]) == (201, path)
    assert [paused.json()["paused"], shown.json()["note"], resumed.json()["paused"]] == [
        True,
        "why",
        False,
    ]
    assert await has_job(first, run.json()["job"]["id"])
    assert here.name == path.removeprefix("/v1/schedules/")
    assert deleted.status == 204


async def test_an_expectation_belongs_to_the_owner_of_its_name(cluster: Cluster) -> None:
    _, first, second = cluster
    path = f"/v1/expectations/{text_of(first)}"
    expectation = {"every": "1h", "within": "5m", "on_miss": {"task": "alarm"}}

    made = await second.put(path, expectation)
    beat = await second.post(f"{path}/beat")
    shown = await second.get(path)
    deleted = await second.send("DELETE", path)

    assert [each.status for each in (made, beat, shown, deleted)] == [201, 200, 200, 204]
    assert second.engine.expectations.named() == []


async def test_the_status_and_the_headers_of_the_owner_reach_the_client(cluster: Cluster) -> None:
    _, first, second = cluster
    key = text_of(first)
    made = await second.post("/v1/jobs", {"task": "demo", "unique": key})
    refused = await second.post(
        "/v1/jobs", {"task": "demo", "unique": {"key": key, "on_conflict": "reject"}}
    )

    assert made.status == 201
    assert made.headers["location"] == f"/v1/jobs/{made.json()['id']}"
    assert made.headers["cache-control"] == "no-store"
    assert (refused.status, refused.code) == (409, "duplicate-key")
    assert refused.headers["x-request-id"] == refused.json()["request_id"]


async def test_a_large_response_of_the_owner_reaches_the_client_whole(cluster: Cluster) -> None:
    _, first, second = cluster
    text = "x" * 900_000
    items = [
        {"task": "demo", "payload": text, "unique": f"{text_of(first)} {number}"}
        for number in range(11)
    ]
    wanted = [each for each in items if shard_is(first, each)]

    reply = await second.post("/v1/jobs:batch", wanted[:8])

    assert reply.status == 200
    assert [item["job"]["payload"] for item in reply.json()["items"]] == [text] * len(wanted[:8])


def shard_is(world: MemberWorld, item: dict[str, Any]) -> bool:
    return world.cluster.is_mine(shard_of(item["unique"]))


async def test_a_malformed_id_and_an_unknown_job_are_not_found(cluster: Cluster) -> None:
    _, _, second = cluster

    for ident in ("nonsense", "0" * 13):
        assert (await second.post(f"/v1/jobs/{ident}:cancel")).code == "not-found"


async def test_a_request_waits_while_its_shard_moves(cluster: Cluster) -> None:

    everything, first, second = cluster
    key = text_of(first)
    everything.give([shard_of(key)], None)
    submitting = asyncio.ensure_future(second.post("/v1/jobs", {"task": "demo", "unique": key}))
    await asyncio.wait([submitting], timeout=0.05)
    assert not submitting.done()

    everything.give([shard_of(key)], 2)

    reply = await submitting
    assert reply.status == 201
    assert await has_job(second, reply.json()["id"])


async def test_a_server_that_is_wrong_about_an_owner_asks_the_right_one(cluster: Cluster) -> None:
    everything, first, second = cluster
    key = text_of(first)
    everything.give(range(SHARDS), 2)
    first.cluster.believed = dict.fromkeys(range(SHARDS), 1)  # it was its own
    submitting = asyncio.ensure_future(first.post("/v1/jobs", {"task": "demo", "unique": key}))
    await asyncio.wait([submitting], timeout=0.05)
    assert not submitting.done()

    first.cluster.believed.clear()
    everything.give([], None)

    reply = await submitting
    assert reply.status == 201
    assert await has_job(second, reply.json()["id"])


async def test_a_request_that_the_owner_does_not_own_any_more_is_sent_again(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    key = text_of(first)
    everything.give(range(SHARDS), 2)
    everything.owners[shard_of(key)] = 3  # neither of them
    second.cluster.believed = {shard_of(key): 1}
    submitting = asyncio.ensure_future(second.post("/v1/jobs", {"task": "demo", "unique": key}))
    await asyncio.wait([submitting], timeout=0.05)
    assert not submitting.done()

    everything.give([shard_of(key)], 1)

    assert await has_job(first, (await submitting).json()["id"])


async def test_a_shard_that_gets_no_owner_in_time_is_unavailable(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "MOVING_S", 0.05)
    everything, first, second = cluster
    key = text_of(first)
    everything.give([shard_of(key)], None)

    reply = await second.post("/v1/jobs", {"task": "demo", "unique": key})

    assert (reply.status, reply.code) == (503, "unavailable")
    assert reply.headers["retry-after"] == "1"


@pytest.mark.parametrize("error", [NotFound("it is gone"), Unavailable("the shards change")])
async def test_a_wait_that_fails_when_the_shard_has_moved_makes_no_second_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: SchedoError
) -> None:
    everything, first, second = cluster
    body = {"task": "demo", "unique": text_of(first)}

    async def move(*_: object) -> None:
        everything.give(range(SHARDS), 2)
        raise error

    monkeypatch.setattr(first.engine, "wait", move)

    reply = await first.post("/v1/jobs?wait=30s", body)

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert not (await second.get("/v1/jobs")).json()["items"]
    assert len((await first.get("/v1/jobs")).json()["items"]) == 1


async def test_an_invocation_that_cannot_be_waited_for_is_not_invoked_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    for world in (first, second):
        world.attach_worker()
        await world.engine.flush()

    async def move(*_: object) -> None:
        everything.give(range(SHARDS), 2)
        raise Unavailable("the shards change")

    monkeypatch.setattr(first.engine.invoke.__self__, "_wait", move)  # type: ignore[attr-defined]

    reply = await first.post("/v1/invoke", {"task": "demo", "wait": "30s"})

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert not (await second.get("/v1/jobs")).json()["items"]
