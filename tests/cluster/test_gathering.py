"""Requests whose response needs several servers, or one that only knows it itself."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from schedo.client.messages import HttpResponse
from schedo.core.leases import AttemptResult, Completed
from schedo.core.shards import shard_of
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import PeerUnreachable
from schedo.protocol.times import render_instant
from schedo.testing.clock import VirtualClock
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_forwarding import text_of
from tests.cluster.workers import HandWorker, lease_of
from tests.web.handlers.test_timeseries import pass_second
from tests.web.world import Reply


async def register(world: MemberWorld, name: str, slots: int = 2) -> Reply:
    """Let a remote worker send its first request to the server."""
    reply = await world.post("/v1/work", {"worker": name, "slots": slots, "session": f"{name}-1"})
    assert reply.status == 200, reply
    return reply


async def test_a_list_of_workers_has_those_of_all_servers(cluster: Cluster) -> None:
    _, first, second = cluster
    await register(first, "w-b")
    await register(second, "w-a")

    for world in (first, second):
        found = (await world.get("/v1/workers")).json()["items"]

        assert [(each["name"], each["server"]) for each in found] == [
            ("w-a", "host 2"),
            ("w-b", "host 1"),
        ]


async def test_the_names_to_complete_are_those_that_any_server_knows(cluster: Cluster) -> None:
    _, first, second = cluster
    await first.post("/v1/work", {"worker": "w-b", "session": "1", "tasks": ["mail"]})
    await second.post("/v1/work", {"worker": "w-a", "session": "1", "tasks": ["index", "mail"]})

    for world in (first, second):
        reply = await world.get("/v1/names")

        assert "etag" not in reply.headers  # that of one server's part says nothing of the others
        assert (reply.json()["workers"], reply.json()["tasks"]) == (
            ["w-a", "w-b"],
            ["http", "index", "mail", "shell"],
        )


async def test_a_worker_is_shown_and_cordoned_by_the_server_that_has_it(cluster: Cluster) -> None:
    _, first, second = cluster
    await register(first, "w")

    shown = await second.get("/v1/workers/w")
    cordoned = await second.post("/v1/workers/w:cordon")
    uncordoned = await second.post("/v1/workers/w:uncordon")
    drained = await second.post("/v1/workers/w:drain")

    assert [each.status for each in (shown, cordoned, uncordoned, drained)] == [200] * 4
    assert cordoned.json()["state"] == "cordoned"
    await first.engine.flush()
    assert [each["action"] for each in (await first.get("/v1/log")).json()["items"]] == [
        "drain_worker",
        "uncordon_worker",
        "cordon_worker",
    ]
    assert (await second.get("/v1/workers/nobody")).code == "not-found"


@pytest.mark.parametrize("asked", [0, 1])
async def test_a_worker_that_two_servers_know_is_cordoned_at_both(
    cluster: Cluster, asked: int
) -> None:
    _, *worlds = cluster
    for world in worlds:
        await register(world, "w")

    answer = await worlds[asked].post("/v1/workers/w:cordon")

    shown = [(await world.get("/v1/workers/w")).json()["state"] for world in worlds]
    assert (answer.status, shown) == (200, ["cordoned"] * 2)
    for world in worlds:
        await world.engine.flush()
    logged = [len((await world.get("/v1/log")).json()["items"]) for world in worlds]
    assert (logged[asked], sum(logged)) == (1, 1)


@pytest.mark.parametrize("asked", [0, 1, 2])
async def test_a_changed_worker_has_what_it_runs_for_all_servers(asked: int) -> None:
    async with running_cluster(3) as (_, worlds):
        worker = HandWorker("w", slots=3)
        lease = await worker.take(worlds[0], task="demo")
        polling = worker.begin_poll(worlds[1], lease)
        await worlds[1].submit(task="demo")
        lease_of(await polling)

        for action in ("cordon", "uncordon", "drain"):
            changed = (await worlds[asked].post(f"/v1/workers/w:{action}")).json()

            assert (changed["running"], changed["free"], len(changed["runs"])) == (2, 1, 2)
            assert changed == (await worlds[asked].get("/v1/workers/w")).json()


async def test_a_worker_of_a_server_itself_is_cordoned_at_the_one_that_was_asked(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    for world in (first, second):
        world.engine.attach(WorkerSpec("local", 1), world.worker)

    await second.post("/v1/workers/local:cordon")

    states = [(await each.get("/v1/workers/local")).json()["state"] for each in (first, second)]
    assert states == ["active", "cordoned"]


async def test_a_cordon_that_a_server_has_not_got_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    for world in (first, second):
        await register(world, "w")
    send = second.router.servers.peers.send

    async def lose(member: Any, hop: Any, *arguments: Any, **fields: Any) -> HttpResponse:
        if hop.purpose == "confirm":
            raise PeerUnreachable("it is gone")
        return await send(member, hop, *arguments, **fields)

    monkeypatch.setattr(second.router.servers.peers, "send", lose)

    answer = await second.post("/v1/workers/w:cordon")

    assert (answer.status, answer.code) == (503, "peer-unreachable")
    assert "have not confirmed it: host 1" in answer.json()["detail"]


async def test_a_queue_counts_the_jobs_of_all_servers(cluster: Cluster) -> None:
    _, first, second = cluster
    for world, count in ((first, 2), (second, 3)):
        for _ in range(count):
            await world.submit(queue="mail")
    await first.submit(queue="alone")

    found = {each["name"]: each for each in (await second.get("/v1/queues")).json()["items"]}

    assert found["mail"]["waiting"] == {"queued": 5}
    assert found["alone"]["waiting"] == {"queued": 1}
    assert list(found) == sorted(found)


async def test_limits_and_pauses_of_a_queue_hold_in_all_servers_when_they_are_confirmed() -> None:
    async with running_cluster(3) as (_, worlds):
        queue = text_of(worlds[0])
        limited = await worlds[2].patch(f"/v1/queues/{queue}", {"concurrency": 3, "weight": 5})
        paused = await worlds[1].post(f"/v1/queues/{queue}:pause", {"note": "why"})
        then = [world.engine.get_queue(queue) for world in worlds]
        await worlds[1].post(f"/v1/queues/{queue}:resume")
        logged = [(await world.get("/v1/log")).json()["items"] for world in worlds]

        assert [limited.json()["concurrency"], paused.json()["paused"]] == [3, True]
        assert [(each.concurrency, each.weight, each.paused) for each in then] == [(3, 5, True)] * 3
        assert not any(world.engine.get_queue(queue).paused for world in worlds)
        assert [len(entries) for entries in logged] == [3, 0, 0]


async def test_a_changed_queue_counts_the_jobs_of_all_servers() -> None:
    async with running_cluster(3) as (_, worlds):
        for world in worlds:
            await world.submit(queue="mail")

        for asked in worlds:
            changed = [
                await asked.patch("/v1/queues/mail", {"weight": 5}),
                await asked.post("/v1/queues/mail:pause"),
                await asked.post("/v1/queues/mail:resume"),
            ]

            assert [each.json()["waiting"] for each in changed] == [{"queued": 3}] * 3
            assert [each.json()["paused"] for each in changed] == [False, True, False]


async def test_a_pause_of_the_server_holds_in_all_servers(cluster: Cluster) -> None:
    _, first, second = cluster

    paused = await second.post("/v1/server:pause", {"note": "move"})
    then = [world.engine.pauses() for world in (first, second)]
    resumed = await first.post("/v1/server:resume", {})

    assert [len(each) for each in (paused.json()["pauses"], *then)] == [2, 2, 2]
    assert resumed.json()["pauses"] == [] == second.engine.pauses()


async def test_a_bad_change_for_all_servers_changes_none(cluster: Cluster) -> None:
    _, first, second = cluster
    queue = text_of(first)

    reply = await second.patch(f"/v1/queues/{queue}", {"concurrency": 0})

    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "/concurrency")
    assert not any(world.engine.get_queue(queue).concurrency for world in (first, second))


async def test_the_summary_adds_the_figures_of_all_servers_up(cluster: Cluster) -> None:
    _, first, second = cluster
    for world in (first, second):
        world.engine.attach(WorkerSpec("process-1", 3), world.worker)
        await world.submit(queue="mail")
        await world.worker.first()
        await world.submit(queue="mail", delay="1h")
    await first.get("/v1/queues")  # waits until the stores have counted

    found = (await first.get("/v1/summary")).json()

    assert (found["slots"], found["running"]) == (6, 2)
    assert found["states"]["scheduled"] == 2
    assert [(each["name"], each["running"]) for each in found["queues"]] == [("mail", 2)]
    assert [each["server"] for each in found["workers"]] == ["host 1", "host 2"]
    assert found["epoch"] == first.engine.health().epoch


async def test_the_summary_says_since_when_the_server_that_was_asked_runs(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    assert first.engine.metrics.began_at < second.engine.metrics.began_at

    found = (await second.get("/v1/summary")).json()

    assert found["started_at"] == render_instant(second.engine.metrics.began_at)


async def test_figures_over_time_are_those_of_all_servers(cluster: Cluster) -> None:
    _, _, second = cluster

    found = (await second.get("/v1/timeseries?points=3&names=submitted,loop_lag_us")).json()

    assert list(found["figures"]) == ["submitted", "loop_lag_us"]
    assert [len(values) for values in found["figures"].values()] == [3, 3]


async def test_figures_of_a_queue_come_from_the_servers_that_measure_it(cluster: Cluster) -> None:
    _, first, second = cluster
    for world in (first, second):
        await world.engine.series.load()
    first.attach_worker()
    await first.submit(queue="mail")
    await first.worker.first()
    for world in (first, second):
        world.clock = cast(VirtualClock, world.engine.clock)
        pass_second(world)
        pass_second(world, 60)

    for world in (first, second):
        found = await world.get("/v1/timeseries?window=24h&queue=mail")

        assert found.status == 200, found
        assert [n for n in found.json()["figures"]["submitted"] if n is not None] == [1]
        assert "schedo-unreachable" not in found.headers
    assert (await second.get("/v1/timeseries?window=24h&queue=nosuch")).code == "bad-request"


async def test_failures_of_all_servers_are_one_list(cluster: Cluster) -> None:
    _, _, second = cluster

    found = (await second.get("/v1/failures")).json()

    assert found["items"] == []
    assert "since" in found


async def test_expectations_of_all_servers_are_one_list(cluster: Cluster) -> None:
    _, first, second = cluster
    names = sorted([text_of(first), text_of(second)])
    for name in names:
        await first.put(f"/v1/expectations/{name}", {"every": "1h", "within": "5m"})

    found = (await second.get("/v1/expectations")).json()["items"]

    assert [each["name"] for each in found] == names


async def test_an_expectation_whose_shard_moves_is_listed_once(cluster: Cluster) -> None:
    everything, first, second = cluster
    name = text_of(first)
    await first.put(f"/v1/expectations/{name}", {"every": "1h", "within": "5m"})
    everything.give([shard_of(name)], 2)
    await second.put(f"/v1/expectations/{name}", {"every": "2h", "within": "5m"})

    for world in (first, second):
        found = (await world.get("/v1/expectations")).json()["items"]

        assert [(each["name"], each["every"]) for each in found] == [(name, "2h")]


async def test_an_invocation_runs_on_a_worker_of_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    first.attach_worker()
    await first.engine.flush()
    invoking = asyncio.ensure_future(second.post("/v1/invoke", {"task": "demo"}))
    lease = await first.worker.first()

    first.engine.report(AttemptResult(lease.key, Completed(b"3")))

    reply = await invoking
    assert (reply.status, reply.json()["result"]) == (200, 3)


async def test_the_short_form_of_an_invocation_runs_on_a_worker_of_another_server(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    first.attach_worker()
    await first.engine.flush()
    invoking = asyncio.ensure_future(second.post("/schedule", {"Task": "demo"}))
    lease = await first.worker.first()

    first.engine.report(AttemptResult(lease.key, Completed(b"4")))

    reply = await invoking
    assert (reply.status, reply.json()) == (200, 4)
    assert (await second.post("/schedule", {"command": "true"})).status == 201


async def test_an_invocation_prefers_the_workers_of_the_server_that_was_asked(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    for world in (first, second):
        world.attach_worker()
        await world.engine.flush()
    invoking = asyncio.ensure_future(second.post("/v1/invoke", {"task": "demo"}))

    lease = await second.worker.first()

    second.engine.report(AttemptResult(lease.key, Completed()))
    assert (await invoking).status == 200
    assert not first.worker.leases


async def test_an_invocation_without_room_counts_the_workers_of_all_servers(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    for world in (first, second):
        world.attach_worker(slots=1)
        await world.submit()
        await world.worker.first()

    reply = await second.post("/v1/invoke", {"task": "demo"})

    assert (reply.status, reply.code) == (503, "no-capacity")
    assert (reply.json()["considered"], sum(reply.json()["rejected"].values())) == (2, 2)
    assert reply.headers["retry-after"]


async def test_a_reservation_of_another_server_is_used_and_released(cluster: Cluster) -> None:
    _, first, second = cluster
    first.attach_worker()
    await first.engine.flush()
    made: list[Any] = [await second.post("/v1/reservations", {"task": "demo"}) for _ in range(2)]
    nonces = [[("schedo-lease-nonce", each.json()["nonce"])] for each in made]
    paths = [f"/v1/reservations/{each.json()['id']}" for each in made]

    released = await second.post(f"{paths[0]}:release", None, nonces[0])
    again = await second.post(f"{paths[0]}:release", None, nonces[0])
    committed = await second.post(f"{paths[1]}:commit", {"task": "demo", "wait": 0}, nonces[1])

    assert [released.status, again.status, committed.status] == [204, 409, 201]
    assert again.code == "no-reservation"
    assert (await first.worker.first()).task == "demo"
