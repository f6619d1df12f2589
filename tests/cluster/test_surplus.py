"""Jobs for which the owner has no free worker run on workers that poll other servers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import owner_pace, surplus
from schedo.cluster.client_request import ClientRequest
from schedo.cluster.surplus import KEYS_MAX, OwnSurplus, Question
from schedo.core.model import ReadyKey
from schedo.core.requirements import Condition, Preference, Requirements
from schedo.core.states import State
from schedo.core.worker_messages import PollResponse
from schedo.protocol.leases import parse_lease
from schedo.web.http import Response
from schedo.web.server import STOP_GRACE_S
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.workers import HandWorker, holds, lease_of, result
from tests.passes import one_pass

STOPS_WITHIN_S = STOP_GRACE_S / 2
ENDS_WITHIN_S = 2.0


async def is_completed(world: MemberWorld, lease: str) -> bool:
    return (await world.engine.get(parse_lease(lease).job_id)).state is State.COMPLETED


async def test_a_job_runs_on_a_worker_that_polls_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    polling = worker.begin_poll(second)

    await first.submit(task="demo")
    lease = lease_of(await polling)
    answer = await worker.poll(second, results=[result(lease)])

    assert answer["refused"] == []
    assert await is_completed(first, lease)


async def test_a_job_that_waits_already_runs_on_the_next_worker_of_another_server(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await first.submit(task="demo")

    assert lease_of(await HandWorker().begin_poll(second))


async def test_a_job_whose_start_must_be_durable_runs_on_a_worker_of_another_server(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    polling = HandWorker().begin_poll(second)

    await first.submit(task="demo", delivery="at_most_once")

    assert lease_of(await polling)


async def learns(world: MemberWorld, task: str) -> None:
    """Return once the server knows the task."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while task not in world.engine.tasks:
            await one_pass()


async def test_a_server_knows_the_tasks_that_workers_of_other_servers_offer(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    first.engine.tasks._is_any = False
    workers = [HandWorker(name, tasks=[name]) for name in ("early", "late")]
    for worker in workers:
        unknown = await first.submit(task=worker.name, delay="1h")
        polling = worker.begin_poll(second)
        await learns(first, worker.name)
        known = await first.submit(task=worker.name, delay="1h")

        assert "no worker has a task" in unknown["warnings"][0]
        assert "warnings" not in known
        polling.cancel()

    polling = HandWorker("any").begin_poll(second)
    await learns(first, "whatever")


async def test_workers_with_very_many_tasks_count_as_offering_every_task(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "TASKS_KEPT", 2)
    _, first, second = cluster
    first.engine.tasks._is_any = False

    polling = HandWorker(tasks=["a", "b", "c"]).begin_poll(second)
    await learns(first, "whatever")

    assert not second.router._gateway._surplus_of_others._offered
    polling.cancel()


async def test_a_worker_gets_no_more_leases_of_all_servers_than_it_has_slots(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    for world in (first, second):
        await world.post("/v1/jobs:batch", [{"task": "demo"}] * 5)
    worker = HandWorker(slots=3)
    running: list[str] = []
    while len(running) < 3:
        answer = await worker.begin_poll(second, *running)
        running += [each["lease"] for each in answer["leases"]]

    full = worker.begin_poll(second, *running)
    await asyncio.wait([full], timeout=0.1)

    assert len(running) == 3
    assert not full.done()
    answer = await worker.poll(second, *running[1:], results=[result(running[0])], wait=20)
    assert len(answer["leases"]) == 1
    await full


async def test_a_full_worker_that_does_not_wait_gets_its_response_while_others_have_jobs(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await first.post("/v1/jobs:batch", [{"task": "demo"}] * 2)
    worker = HandWorker(slots=1)
    lease = lease_of(await worker.begin_poll(second))

    async with asyncio.timeout(ENDS_WITHIN_S):
        answer = await worker.poll(second, lease)

    assert answer["leases"] == []


async def test_a_full_worker_that_waits_is_not_looked_at_again_and_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    await first.post("/v1/jobs:batch", [{"task": "demo"}] * 2)
    worker = HandWorker(slots=1)
    lease = lease_of(await worker.begin_poll(second))
    turns = 0
    work = second.engine.sessions.work

    async def work_and_count(*arguments: Any) -> PollResponse:
        nonlocal turns
        turns += 1
        return await work(*arguments)

    monkeypatch.setattr(second.engine.sessions, "work", work_and_count)
    polling = worker.begin_poll(second, lease)
    await asyncio.wait([polling], timeout=0.2)

    assert turns <= 2  # it is asked what it serves, and then waits
    polling.cancel()


async def test_two_gateways_that_want_one_job_start_it_once() -> None:
    async with running_cluster(3) as (_, (first, second, third)):
        workers = [HandWorker("a"), HandWorker("b")]
        polls = [
            worker.begin_poll(world) for worker, world in zip(workers, (second, third), strict=True)
        ]
        for poll in polls:
            await asyncio.wait([poll], timeout=0.05)

        await first.submit(task="demo")
        done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(waiting, timeout=0.1)

        assert [len(poll.result()["leases"]) for poll in done] == [1]
        for poll in waiting:
            assert not poll.done()
            poll.cancel()


async def test_a_worker_that_does_not_serve_the_jobs_of_another_server_is_not_asked(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    worker.description["tasks"] = ["other"]
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    await asyncio.wait([polling], timeout=0.15)
    assert not polling.done()

    await first.submit(task="other")

    assert lease_of(await polling)


async def test_jobs_that_no_worker_runs_hide_none_that_a_worker_of_another_server_does(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    for number in range(3 * KEYS_MAX):
        await first.submit(task=f"without-{number}")
    await first.submit(task="demo")
    worker = HandWorker()
    worker.description["tasks"] = ["demo"]

    lease = lease_of(await worker.begin_poll(second))
    polling = worker.begin_poll(second, lease)
    await first.submit(task="demo")

    assert lease_of(await polling)


async def test_a_draining_server_that_has_no_jobs_to_give_is_not_asked_again_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    count = 0
    was_asked = asyncio.Event()
    respond = OwnSurplus.respond

    async def respond_and_count(own: OwnSurplus, asked: ClientRequest) -> Response:
        nonlocal count
        count += 1
        was_asked.set()
        return await respond(own, asked)

    monkeypatch.setattr(OwnSurplus, "respond", respond_and_count)
    polling = HandWorker().begin_poll(second)
    await was_asked.wait()

    first.app.drain()
    await asyncio.wait([polling], timeout=0.3)

    assert count <= 2  # the one that was held, and perhaps one right after it
    polling.cancel()


async def test_a_server_that_stops_does_not_wait_for_those_that_ask_for_its_jobs(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    polling = HandWorker().begin_poll(second)
    await first.submit(task="demo")
    await polling  # so the second server has asked the first one
    HandWorker("v").begin_poll(second)

    async with asyncio.timeout(STOPS_WITHIN_S):
        await first.http.stop()


async def test_a_server_starts_nothing_while_others_may_have_its_jobs(cluster: Cluster) -> None:
    _, first, _ = cluster
    assert first.engine.sessions.may_start()

    first.engine._loop.is_sure = lambda: False

    assert not first.engine.sessions.may_start()


def test_a_ready_key_is_the_same_after_its_way_to_another_server() -> None:
    requirements = Requirements(
        labels=(Condition("zone", "in", ("a", "b")),),
        resources=(("gpu", 1), ("memory_gb", 1_500_000)),
        worker="w",
        prefer=(Preference((Condition("ssd", "=", ("yes",)),), 2.0),),
    )
    keys = [ReadyKey("default", "demo"), ReadyKey("mail", "demo", requirements=requirements)]

    body = msgspec.json.encode(Question(keys))

    assert {*msgspec.json.decode(body, type=Question).skip} == {*keys}


async def test_a_worker_that_comes_later_gets_the_jobs_that_no_other_one_runs(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker, later = HandWorker("w"), HandWorker("later")
    worker.description["tasks"] = ["demo"]
    polling = worker.begin_poll(second)
    await first.submit(task="rare")
    await asyncio.wait([polling], timeout=0.05)

    lease = lease_of(await later.begin_poll(second))
    polling_on = later.begin_poll(second, lease)
    await asyncio.wait([polling_on], timeout=0.05)
    await first.submit(task="rare")

    assert lease_of(await polling_on)
    polling.cancel()


async def test_a_job_of_a_paused_queue_or_server_is_no_surplus(cluster: Cluster) -> None:
    _, first, _ = cluster
    sessions = first.engine.sessions
    await first.submit(task="demo")
    await first.submit(task="demo", queue="paused")
    assert len(sessions.find_surplus(16)) == 2
    assert len(sessions.find_surplus(1)) == 1

    await first.post("/v1/queues/paused:pause")
    assert [key.queue for key in sessions.find_surplus(16)] == ["default"]
    await first.post("/v1/server:pause", {})

    assert sessions.find_surplus(16) == {}


async def test_the_jobs_of_the_gateway_come_first(cluster: Cluster) -> None:
    _, first, second = cluster
    await first.submit(task="demo")
    await second.submit(task="own")

    answer = await HandWorker(slots=1).begin_poll(second)

    assert [each["task"] for each in answer["leases"]] == ["own"]


async def test_a_stop_reaches_a_worker_whose_poll_waits_at_another_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=2)
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    lease = lease_of(await polling)
    monkeypatch.setattr(owner_pace, "LOOK_S", 0.0)

    await second.post(f"/v1/jobs/{lease[:13]}:cancel")
    answer = await worker.begin_poll(second, lease)

    assert answer["stop"] == [{"lease": lease, "reason": "cancel"}]


async def test_a_request_that_the_worker_has_given_up_takes_nothing_from_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    peers, sending, let_go = second.router.servers.peers, asyncio.Event(), asyncio.Event()
    arrived = asyncio.Event()
    send = peers.send

    async def send_late(member: Any, hop: Any, *arguments: Any, **fields: Any) -> HttpResponse:
        if hop.purpose == "work":
            sending.set()
            await let_go.wait()
        found = await send(member, hop, *arguments, **fields)
        if hop.purpose == "work":
            arrived.set()
        return found

    monkeypatch.setattr(peers, "send", send_late)
    await first.submit(task="demo")
    old = worker.begin_poll(second)
    await sending.wait()
    lease = lease_of(await worker.poll(first, wait=20))

    let_go.set()
    await arrived.wait()
    old.cancel()

    assert holds(first, lease)
