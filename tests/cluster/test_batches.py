"""Batches whose jobs belong to several servers, also when the shards move meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from schedo.cluster.peers import ChangeLost
from schedo.core.shards import SHARDS, shard_of
from schedo.errors import PeerUnreachable, Unavailable
from schedo.store.cluster import Member
from tests.cluster.conftest import Cluster
from tests.cluster.members import note_home_shards, running_cluster
from tests.cluster.test_forwarding import has_job, text_of

KEY = [("Idempotency-Key", "batch")]
ITEMS: list[dict[str, Any]] = [{"task": "demo", "unique": f"u{number}"} for number in range(9)]


async def test_a_batch_is_divided_and_its_items_keep_their_order(cluster: Cluster) -> None:
    _, first, second = cluster
    items: list[dict[str, Any]] = [
        {"task": "demo", "tags": [str(number)]} | ({"unique": str(number)} if number % 3 else {})
        for number in range(20)
    ]
    items.insert(5, {"task": 7})

    reply = await second.post("/v1/jobs:batch", items)

    found = reply.json()["items"]
    assert [each["status"] for each in found] == [201] * 5 + [422] + [201] * 15
    jobs = [each["job"] for each in found if "job" in each]
    assert [job["tags"] for job in jobs] == [[str(number)] for number in range(20)]
    for number, job in enumerate(jobs):
        is_first = number % 3 > 0 and first.cluster.is_mine(shard_of(str(number)))
        assert await has_job(first if is_first else second, job["id"])


async def test_a_divided_batch_with_a_key_has_one_effect(cluster: Cluster) -> None:
    _, first, second = cluster
    items = [{"task": "demo", "unique": f"u{number}"} for number in range(9)] + [{"task": "demo"}]
    lines = b"\n".join(map(orjson.dumps, items))
    key = [("Idempotency-Key", "batch")]

    made = await second.post("/v1/jobs:batch", items, key)
    again = await first.send(
        "POST", "/v1/jobs:batch", lines, key, content_type="application/x-ndjson"
    )

    ids = [[each["job"]["id"] for each in reply.json()["items"]] for reply in (made, again)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 10
    assert again.headers["idempotency-replayed"] == "true"


async def test_a_bad_batch_is_refused_where_it_came(cluster: Cluster) -> None:
    _, _, second = cluster

    for body in (b"[{", b'["', b"nonsense"):
        assert (await second.send("POST", "/v1/jobs:batch", body)).status == 400


async def test_each_part_of_a_batch_with_a_key_carries_the_shard_of_the_clients_key(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    found = note_home_shards(first, monkeypatch)
    plain = [{"task": "demo"}] * 2

    for number in range(8):  # the shards of half of these keys are at the other server
        key = [("Idempotency-Key", f"batch {number}")]
        assert (await second.post("/v1/jobs:batch", plain + ITEMS, key)).status == 200

    assert {len(home_shards) for home_shards in found} == {1}
    assert all(first.cluster.is_mine(shard) for home_shards in found for shard in home_shards)
    assert not {shard for home_shards in found for shard in home_shards} <= {
        shard_of(item["unique"]) for item in ITEMS
    }


async def test_a_part_without_a_key_carries_the_shards_of_all_its_jobs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    found = note_home_shards(first, monkeypatch), note_home_shards(second, monkeypatch)

    await second.post("/v1/jobs:batch", ITEMS)

    shards = {shard_of(item["unique"]) for item in ITEMS}
    assert found == (
        [{each for each in shards if first.cluster.is_mine(each)}],
        [{each for each in shards if second.cluster.is_mine(each)}],
    )


@pytest.mark.parametrize("key", [[], KEY])
async def test_a_part_whose_owner_dies_is_divided_among_those_that_have_its_shards_then(
    key: list[tuple[str, str]],
) -> None:
    async with running_cluster(3) as (everything, [first, second, third]):
        await third.http.stop(grace_s=0.2)  # and the others do not know it yet
        left = [shard for shard in range(SHARDS) if third.cluster.is_mine(shard)]
        submitting = asyncio.ensure_future(first.post("/v1/jobs:batch", ITEMS, key))
        await asyncio.wait([submitting], timeout=0.05)
        assert not submitting.done()

        everything.give(left[::2], 1)
        everything.give(left[1::2], 2)
        reply = await submitting

        assert [item["status"] for item in reply.json()["items"]] == [201] * len(ITEMS)
        for item, sent in zip(reply.json()["items"], ITEMS, strict=True):
            owner = first if first.cluster.is_mine(shard_of(sent["unique"])) else second
            assert await has_job(owner, item["job"]["id"])


async def test_a_part_whose_shards_move_before_its_turn_is_submitted_by_the_new_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster

    async def move(*_: object, **__: object) -> None:
        everything.give(range(SHARDS), 2)
        raise Unavailable("the shard has just moved")

    monkeypatch.setattr(first.engine, "submit", move)

    reply = await second.post("/v1/jobs:batch", ITEMS)

    made = [item["job"]["id"] for item in reply.json()["items"]]
    assert [await has_job(second, each) for each in made] == [True] * len(ITEMS)


async def test_a_batch_with_a_key_has_one_effect_although_a_queue_gets_a_limit_meanwhile(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    items = [{"task": "demo", "queue": f"q{number}"} for number in range(4)]
    made = await second.post("/v1/jobs:batch", items, KEY)
    for number in range(4):
        reply = await second.patch(f"/v1/queues/q{number}", {"concurrency": 5})
        assert reply.status == 200

    again = await first.post("/v1/jobs:batch", items, KEY)

    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == made.json()


@pytest.mark.parametrize("lost", [2, 3])
async def test_a_batch_without_any_result_is_not_called_refused_if_a_part_may_be_carried_out(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(3) as (_, [first, second, third]):

        async def send(member: Member, *_: object) -> None:
            if member.no == lost:
                raise ChangeLost("the server may or may not have carried it out")
            raise PeerUnreachable("the server is gone")

        monkeypatch.setattr(first.router.servers.peers, "send", send)
        items = [{"task": "demo", "unique": text_of(world)} for world in (second, third)]

        reply = await first.post("/v1/jobs:batch", items)

        assert (reply.status, reply.code) == (503, "outcome-unknown")
