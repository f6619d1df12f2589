"""Servers of a cluster that are dead, slow or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from schedo.cluster import gathering, peers, servers
from schedo.core.shards import SHARDS, shard_of
from tests.cluster.conftest import Cluster
from tests.cluster.members import Map
from tests.cluster.test_forwarding import has_job, text_of
from tests.passes import one_pass
from tests.web.handlers.test_metrics import scrape, values

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def move(everything: Map, number: int, url: str) -> None:
    """Let all members believe that the server is at this URL."""
    everything.members[:] = [
        each._replace(url=url) if each.no == number else each for each in everything.members
    ]


@asynccontextmanager
async def standing_in(everything: Map, number: int, talk: Talk) -> AsyncIterator[list[bytes]]:
    """Let this function speak for the server; yield the heads of the requests that it gets."""
    heads: list[bytes] = []
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio makes one for each connection"
        serving.add(task)
        try:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await talk(reader, writer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError):
            pass  # the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    move(everything, number, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield heads
    finally:
        server.close()
        for _ in range(3):  # a connection that has just been accepted begins, and is ended then
            await one_pass()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving)
        await one_pass()  # in which the transports are closed


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """End the connection, as the death of a server does."""
    writer.transport.abort()


def stopped(everything: Map) -> Talk:
    """Respond nothing, and let server 2 have all shards of server 1 meanwhile."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        everything.members[0] = everything.members[0]._replace(silent_us=None)
        everything.give(range(SHARDS), 2)
        await reader.read()

    return talk


async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond nothing until the other end leaves."""
    await reader.read()


async def test_a_server_that_accepts_no_connection_is_unreachable(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    key = text_of(first)
    await first.http.stop(grace_s=0.1)
    monkeypatch.setattr(servers, "MOVING_S", 0.05)

    reply = await second.post("/v1/jobs", {"task": "demo", "unique": key})

    assert (reply.status, reply.code) == (503, "peer-unreachable")
    assert "host 1 cannot be reached at http://127.0.0.1" in reply.json()["detail"]
    assert reply.headers["retry-after"] == "1"


async def test_a_request_to_a_dead_server_goes_to_the_one_that_takes_its_shards(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    key = text_of(first)
    await first.http.stop(grace_s=0.1)
    submitting = asyncio.ensure_future(second.post("/v1/jobs", {"task": "demo", "unique": key}))
    await asyncio.wait([submitting], timeout=0.05)
    assert not submitting.done()

    everything.give([shard_of(key)], 2)

    assert (await submitting).status == 201


async def test_a_change_whose_server_dies_meanwhile_is_sent_once_and_has_an_unknown_outcome(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    async with standing_in(everything, 1, hang_up) as heads:
        reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert "host 1" in reply.json()["detail"]
    assert len(heads) == 1


async def test_a_change_that_another_server_has_got_is_not_called_refused_by_one_that_stops(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    has_come = asyncio.Event()

    async def carry_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        has_come.set()
        await reader.read()

    async with standing_in(everything, 1, carry_out):
        body = {"task": "demo", "unique": text_of(first)}
        submitting = asyncio.ensure_future(second.post("/v1/jobs?wait=20s", body))
        await has_come.wait()
        second.app.drain()
        await second.http.stop(grace_s=0.01)
        reply = await submitting

    assert (reply.status, reply.code) == (503, "outcome-unknown")


async def test_a_read_whose_server_dies_meanwhile_is_sent_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "MOVING_S", 0.05)
    everything, first, second = cluster
    job = await first.submit(delay="1h")
    async with standing_in(everything, 1, hang_up) as heads:
        reply = await second.get(f"/v1/jobs/{job['id']}/why")

    assert (reply.status, reply.code) == (503, "peer-unreachable")
    assert len(heads) > 1


async def test_a_change_at_a_stopped_server_has_an_unknown_outcome_once_others_have_its_shards(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    async with standing_in(everything, 1, stopped(everything)) as heads:
        reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert len(heads) == 1


async def test_a_submit_with_a_key_at_a_stopped_server_goes_to_the_one_that_has_its_shards(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    body, key = {"task": "demo", "unique": text_of(first)}, [("Idempotency-Key", "k")]
    async with standing_in(everything, 1, stopped(everything)):
        reply = await second.post("/v1/jobs", body, key)

    assert reply.status == 201
    assert await has_job(second, reply.json()["id"])


async def test_a_read_at_a_stopped_server_goes_to_the_one_that_has_its_shards(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    name = text_of(first)
    everything.give([shard_of(name)], 2)
    await second.put(f"/v1/schedules/{name}", {"task": "demo", "every": "1h"})
    everything.give([shard_of(name)], 1)
    async with standing_in(everything, 1, stopped(everything)):
        reply = await second.get(f"/v1/schedules/{name}")

    assert (reply.status, reply.json()["name"]) == (200, name)


async def test_a_pause_does_not_wait_for_a_stopped_server_that_others_have_replaced(
    cluster: Cluster,
) -> None:
    everything, _, second = cluster
    queue = text_of(second)
    async with standing_in(everything, 1, stopped(everything)):
        reply = await second.post(f"/v1/queues/{queue}:pause")

    assert reply.status == 200
    assert second.engine.get_queue(queue).paused


async def test_a_change_of_a_job_does_not_wait_for_a_database_that_is_silent(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    job = await first.submit(delay="1h")

    async def wait_for_ever(job_id: int) -> int:
        silence: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await silence

    monkeypatch.setattr(servers, "MOVING_S", 0.01)
    monkeypatch.setattr(second.cluster, "shard_of_job", wait_for_ever)

    reply = await second.post(f"/v1/jobs/{job['id']}:cancel")

    assert (reply.status, reply.code) == (503, "unavailable")


async def test_a_server_that_does_not_respond_in_time_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    monkeypatch.setattr(peers, "RESPONSE_S", 0.05)
    async with standing_in(everything, 1, stay_silent):
        reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert (reply.status, reply.code) == (503, "outcome-unknown")


async def test_a_response_that_is_no_http_has_an_unknown_outcome(cluster: Cluster) -> None:
    everything, first, second = cluster

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        await writer.drain()

    async with standing_in(everything, 1, talk):
        reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert reply.code == "outcome-unknown"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/reservations/R1:release"),
        ("GET", "/v1/operations/0CRB5MQTADBG0"),
        ("POST", "/v1/workers/far:cordon"),
    ],
)
async def test_what_a_server_may_have_that_does_not_respond_is_not_called_missing(
    cluster: Cluster, method: str, path: str
) -> None:
    _, first, second = cluster
    await first.http.stop(grace_s=0.05)

    reply = await second.send(method, path, headers=[("schedo-lease-nonce", "n")])

    assert (reply.status, reply.code) == (503, "peer-unreachable")


async def test_a_gathered_list_says_which_server_is_missing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, _, second = cluster
    monkeypatch.setattr(gathering, "GATHER_S", 0.05)
    second.attach_worker()
    await second.engine.flush()
    async with standing_in(everything, 1, stay_silent):
        reply = await second.get("/v1/workers")
        summary = await second.get("/v1/summary")

    assert (reply.status, reply.headers["schedo-unreachable"]) == (200, "host 1")
    assert [each["name"] for each in reply.json()["items"]] == ["hands"]
    verdict = summary.json()["verdict"]
    assert verdict["level"] != "ok"
    assert "the server host 1 does not respond" in [verdict["text"], *verdict["others"]]


async def omit_slots(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond with workers as a version has them that does not know their slots."""
    worker = {"name": "w", "kind": "remote", "state": "active"}
    body = orjson.dumps({"items": [worker, worker]})
    head = f"HTTP/1.1 200 OK\r\nx-request-id: r-1\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    await reader.read()


async def test_a_server_of_another_version_whose_response_does_not_fit_is_missing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    everything, _, second = cluster
    second.attach_worker()
    await second.engine.flush()
    async with standing_in(everything, 1, omit_slots):
        reply = await second.get("/v1/workers")

    assert (reply.status, reply.headers["schedo-unreachable"]) == (200, "host 1")
    assert [each["name"] for each in reply.json()["items"]] == ["hands"]
    assert "the response of the server host 1 does not fit: KeyError('running')" in caplog.text


async def test_a_pause_that_a_server_does_not_confirm_says_so(cluster: Cluster) -> None:
    everything, _, second = cluster
    queue = text_of(second)
    async with standing_in(everything, 1, hang_up):
        reply = await second.post(f"/v1/queues/{queue}:pause")

    assert (reply.status, reply.code) == (503, "peer-unreachable")
    assert "these servers have not confirmed it: host 1" in reply.json()["detail"]
    assert second.engine.get_queue(queue).paused


async def test_the_readiness_and_the_members_show_who_cannot_be_reached(cluster: Cluster) -> None:
    _, first, second = cluster
    await second.router.look()
    before = (await second.get("/v1/cluster")).json()
    await first.http.stop(grace_s=0.1)

    await second.router.look()

    ready = await second.get("/readyz")
    after = (await second.get("/v1/cluster")).json()
    assert ready.status == 200
    assert any("host 1 cannot be reached" in note for note in ready.json()["notes"])
    assert [each["reachable"] for each in before["members"]] == [True, True]
    assert [each["reachable"] for each in after["members"]] == [False, True]
    assert "cannot be reached" in after["members"][0]["problem"]


async def test_the_metrics_count_the_servers_and_the_shards(cluster: Cluster) -> None:
    everything, first, second = cluster
    everything.give([0, 1, 2], None)
    await first.http.stop(grace_s=0.1)
    await second.router.look()

    families = await scrape(second)

    names = ("servers", "unreachable_servers", "shards", "unowned_shards")
    found = {name: values(families[f"schedo_cluster_{name}"])[()] for name in names}
    own = sum(owner == second.number for owner in everything.owners)
    assert found == {"servers": 2, "unreachable_servers": 1, "shards": own, "unowned_shards": 3}


async def test_a_server_whose_session_is_gone_is_not_asked(cluster: Cluster) -> None:
    everything, first, second = cluster
    await first.http.stop(grace_s=0.1)
    everything.members[0] = everything.members[0]._replace(silent_us=None)

    workers = await second.get("/v1/workers")
    paused = await second.post(f"/v1/queues/{text_of(second)}:pause")
    members = (await second.get("/v1/cluster")).json()["members"]

    assert "schedo-unreachable" not in workers.headers
    assert paused.status == 200
    assert [each["reachable"] for each in members] == [False, True]


async def test_a_member_list_has_the_shards_of_each(cluster: Cluster) -> None:
    everything, _, second = cluster
    everything.give([0, 1], None)

    found = (await second.get("/v1/cluster")).json()

    assert (found["me"], found["unowned"]) == (2, [0, 1])
    assert [each["shards"] for each in found["members"]] == [
        [*range(2, 32, 2)],
        [*range(3, 32, 2)],
    ]


async def test_a_change_that_takes_no_key_is_sent_once_although_it_has_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, _, second = cluster
    second.attach_worker()
    job = await second.submit(delay="1h")
    await second.post(f"/v1/jobs/{job['id']}:cancel")
    everything.give(range(SHARDS), 1)

    async def find_shard(_: int) -> int:
        return 0

    monkeypatch.setattr(second.cluster, "shard_of_job", find_shard)

    async with standing_in(everything, 1, stopped(everything)) as heads:
        path = f"/v1/jobs/{job['id']}:retry"
        reply = await second.post(path, {}, [("Idempotency-Key", "k")])

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert len(heads) == 1
