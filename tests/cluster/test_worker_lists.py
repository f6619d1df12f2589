"""A list of the workers of all servers has each remote worker once."""

from __future__ import annotations

from typing import Any, cast

from schedo.cluster.worker_lists import join_workers
from schedo.core.limits import SECOND
from schedo.core.worker_pool import WorkerSpec
from schedo.testing.clock import VirtualClock
from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker, lease_of


def make_worker(name: str, kind: str = "remote", **fields: Any) -> dict[str, Any]:
    usual = {"state": "active", "slots": 4, "running": 0, "free": 4, "resources_used": {}}
    return {"name": name, "kind": kind, "runs": [], **usual, **fields}


def at(second: int) -> str:
    return f"2026-01-02T03:04:{second:02}Z"


def test_own_workers_are_listed_for_each_server() -> None:
    lists = {name: [make_worker("local", "server")] for name in ("two", "one")}

    found = join_workers(lists)

    assert [(each["name"], each["server"]) for each in found] == [
        ("local", "one"),
        ("local", "two"),
    ]


def test_a_remote_worker_is_one_entry_with_all_that_it_runs() -> None:
    runs = [{"job": f"{n}", "task": "demo", "started_at": at(n)} for n in range(3)]
    here = make_worker("w", running=2, runs=runs[1:], last_seen_at=at(5), resources_used={"gpu": 1})
    there = make_worker(
        "w", running=1, runs=runs[:1], last_seen_at=at(9), resources_used={"gpu": 1, "disk": 0.5}
    )

    [found] = join_workers({"one": [here], "two": [there]})

    assert (found["server"], found["running"], found["free"]) == ("two", 3, 1)
    assert [run["job"] for run in found["runs"]] == ["0", "1", "2"]
    assert found["resources_used"] == {"gpu": 2, "disk": 0.5}


def test_a_worker_is_connected_if_one_server_says_so() -> None:
    gone = make_worker("w", state="disconnected", last_seen_at=at(9))

    [found] = join_workers({"one": [gone], "two": [make_worker("w", last_seen_at=at(5))]})

    assert (found["state"], found["server"]) == ("active", "two")


def test_a_worker_is_at_the_server_that_it_polls_and_not_where_others_ask_for_it() -> None:
    relayed = make_worker("w", last_seen_at=at(9), relayed=True)
    old = make_worker("w", last_seen_at=at(1))

    lists = {"one": [relayed], "two": [make_worker("w", last_seen_at=at(5))], "three": [old]}
    [found] = join_workers(lists)

    assert found["server"] == "two"
    assert "relayed" not in found


def test_a_cordoned_worker_that_is_away_is_listed_once() -> None:
    away = make_worker("w", state="cordoned", slots=0, free=0)

    assert len(join_workers({"one": [away], "two": [away]})) == 1


async def test_a_worker_that_runs_a_job_of_another_server_is_listed_once(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker("w", slots=3)
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)
    polling = worker.begin_poll(second, lease)
    await second.submit(task="demo")
    lease_of(await polling)

    for world in (first, second):
        [found] = (await world.get("/v1/workers")).json()["items"]
        assert (found["name"], found["running"], found["free"]) == ("w", 2, 1)
        assert (await world.get("/v1/workers/w")).json() == found


async def test_a_worker_is_at_the_server_that_it_polls(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker("w", slots=3)
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    lease = lease_of(await polling)
    cast(VirtualClock, first.engine.clock).stall(SECOND)
    # The second server sends the first one a part of this poll, which the first server receives at
    # a later instant than the poll itself has at the second one.
    await worker.poll(second, lease)

    for world in (first, second):
        shown = (await world.get("/v1/workers/w")).json()
        assert (shown["server"], shown["running"], shown.get("relayed")) == ("host 2", 1, None)

    await worker.poll(first, lease)
    assert (await second.get("/v1/workers/w")).json()["server"] == "host 1"


async def test_the_slots_of_a_worker_that_polls_several_servers_count_once(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker("w", slots=3)
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)
    first.engine.attach(WorkerSpec("process-1", 5), first.worker)
    await first.engine.flush()

    for world in (first, second):
        found = (await world.get("/v1/summary")).json()
        assert (found["slots"], found["running"]) == (8, 1)


async def test_a_worker_that_drains_or_is_away_has_no_slots(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker("w", slots=3)
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease, draining=True)
    await worker.poll(first, lease, draining=True)

    assert (await second.get("/v1/summary")).json()["slots"] == 0


async def test_a_worker_that_a_silent_server_may_know_is_not_called_missing(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await HandWorker("near").poll(second)
    await first.http.stop(grace_s=0.05)

    far, near = [await second.get(f"/v1/workers/{name}") for name in ("far", "near")]

    assert (far.status, far.code) == (503, "peer-unreachable")
    assert "did not respond: host 1; the others have no worker 'far'" in far.json()["detail"]
    assert (near.status, near.headers["schedo-unreachable"]) == (200, "host 1")
    assert near.json()["server"] == "host 2"
