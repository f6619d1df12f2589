"""Polls in the names of workers that wait at one server, open at another one that has jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from schedo.cluster import relayed_polls
from schedo.cluster.client_request import ClientRequest
from schedo.cluster.parts_of_gateways import Recall
from schedo.cluster.polling_worker import PollingWorker, RelayedPoll
from schedo.cluster.surplus import OwnSurplus
from schedo.cluster.worker_call import WorkerCall
from schedo.core.model import LeaseKey
from schedo.errors import Unavailable
from schedo.web.http import Response
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, delay_start
from tests.cluster.test_lost_leases import IN_FLIGHT_S, BrokenWay, pass_time
from tests.cluster.workers import HandWorker, holds, lease_of, render_lease, result
from tests.passes import until

WITHIN_S = 3.0
AT_ONCE_S = 0.5  # much less than the second after which a gateway asks an owner again
SOME = 10  # questions in AT_ONCE_S, with a pause after each that doubles; else there are 24
SETTLED_S = 0.05  # after which a poll that has just begun is open at the other server


def find_worker(world: MemberWorld) -> PollingWorker | None:
    """Return what the server knows of the worker that polls it."""
    return world.router._gateway._workers._by_name.get("w")


def list_open(world: MemberWorld) -> list[RelayedPoll]:
    """Return the polls that the server keeps open at others for its worker."""
    worker = find_worker(world)
    return [] if worker is None else [*worker.relayed.values()]


async def take(worker: HandWorker, gateway: MemberWorld, owner: MemberWorld) -> str:
    """Return the lease of a job of another server; the gateway then polls that one, too."""
    polling = worker.begin_poll(gateway)
    await owner.submit(task="demo")
    return lease_of(await polling)


async def begin_poll(
    worker: HandWorker, gateway: MemberWorld, *running: str, **fields: Any
) -> asyncio.Task[dict[str, Any]]:
    """Begin a poll, and return when the gateway polls another server for the worker, too."""
    polling = asyncio.create_task(worker.poll(gateway, *running, wait=20, **fields))
    await until(lambda: list_open(gateway))
    await asyncio.wait([polling], timeout=SETTLED_S)
    return polling


async def test_a_worker_fills_its_slots_with_jobs_of_another_server_at_once(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=3)
    running = [await take(worker, second, first)]
    while len(running) < 3:
        polling = await begin_poll(worker, second, *running)
        await first.submit(task="demo")
        async with asyncio.timeout(AT_ONCE_S):
            running.append(lease_of(await polling))


async def leave_open(worker: HandWorker, gateway: MemberWorld, owner: MemberWorld) -> None:
    """Let the worker run one job of each server and poll neither, while its gateway does so."""
    running = [await take(worker, gateway, owner)]
    polling = await begin_poll(worker, gateway, *running)
    await gateway.submit(task="demo")
    await polling
    assert list_open(gateway)


async def test_the_next_process_of_a_worker_is_not_refused_for_a_poll_of_the_last_one(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=3)
    await leave_open(worker, second, first)

    worker.description |= {"session": "s2", "tasks": ["other"]}
    polling = worker.begin_poll(second)
    await until(lambda: not first.engine.sessions.held_by("w"))  # the owner has heard of it
    await until(lambda: not list_open(second))
    await second.submit(task="other")

    assert lease_of(await polling)


async def test_a_worker_with_fewer_tasks_gets_no_job_of_those_that_it_had(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=3, tasks=["demo", "old"])
    await leave_open(worker, second, first)
    running = [each.key for world in (first, second) for each in world.engine.sessions.held_by("w")]

    worker.description["tasks"] = ["demo"]
    polling = worker.begin_poll(second, *map(render_lease, running))
    await first.submit(task="old")
    await asyncio.wait([polling], timeout=AT_ONCE_S)

    assert not polling.done()
    polling.cancel()


async def poll_after(
    worker: HandWorker, lease: str, gateway: MemberWorld
) -> asyncio.Task[dict[str, Any]]:
    """Begin a poll with the result of this lease, after which the worker runs nothing."""
    return await begin_poll(worker, gateway, results=[result(lease)])


async def test_a_worker_whose_leases_have_gone_back_is_forgotten(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=2)
    polling = await poll_after(worker, await take(worker, second, first), second)
    await second.submit(task="demo")
    await polling

    await first.submit(task="demo")  # the lease comes while the worker does not poll

    await until(lambda: find_worker(second) is None)
    await until(lambda: not first.engine.sessions.held_by("w"))


async def test_a_lease_that_is_lost_while_its_worker_gets_full_starts_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_polls, "RECALL_S", SETTLED_S)
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lease = await take(worker, second, first)
    way = BrokenWay(second, monkeypatch)
    way.hangs = True
    polling = await poll_after(worker, lease, second)
    await first.submit(task="demo")
    await until(way.is_lost.is_set)
    await second.submit(task="demo")
    own = lease_of(await polling)
    await until(lambda: not second.router._gateway._relayed_polls._counts[first.number])

    await pass_time(cluster, IN_FLIGHT_S + 1)
    polling = worker.begin_poll(second, own)

    await until(lambda: not holds(first, way.lease))
    polling.cancel()


async def test_a_worker_that_does_not_wait_is_not_held_by_a_slow_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await take(worker, second, first)
    await until(lambda: not list_open(second))
    # Now each poll counts as a long one.
    monkeypatch.setattr(relayed_polls, "HELD_S", 0.0)

    async with asyncio.timeout(AT_ONCE_S):
        answer = await worker.poll(second, lease)

    assert answer["leases"] == []


def count_questions(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return what says how often servers have asked others for their surplus since now."""
    count = 0
    respond = OwnSurplus.respond

    async def respond_and_count(own: OwnSurplus, asked: ClientRequest) -> Response:
        nonlocal count
        count += 1
        return await respond(own, asked)

    monkeypatch.setattr(OwnSurplus, "respond", respond_and_count)
    return lambda: count


async def test_a_full_worker_does_not_make_an_owner_tell_of_its_jobs_again_and_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lease = await take(worker, second, first)
    questions = count_questions(monkeypatch)
    polling = worker.begin_poll(second, lease)
    await first.submit(task="demo")
    await asyncio.wait([polling], timeout=AT_ONCE_S)

    assert questions() <= 3
    polling.cancel()


def has_given(world: MemberWorld) -> bool:
    """Whether another server has given a lease that the worker has not got yet."""
    worker = find_worker(world)
    return worker is not None and bool(worker.given)


async def test_a_lease_goes_back_if_the_request_that_should_get_it_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=3)
    await leave_open(worker, second, first)
    before = {each.key for each in first.engine.sessions.held_by("w")}
    unknown = render_lease(LeaseKey(1, 1, second.engine.sessions.epoch))

    async def refuse(*arguments: Any) -> None:
        raise Unavailable("the jobs of some results move")

    monkeypatch.setattr(second.router._gateway, "_believe", refuse)
    await first.submit(task="demo")
    await until(lambda: has_given(second))
    reply = await worker.send(second, results=[result(unknown)])

    assert reply.status == 503
    await until(lambda: {each.key for each in first.engine.sessions.held_by("w")} == before)


async def test_leases_of_two_servers_are_no_more_than_the_request_wants(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=4)
    running = [await take(worker, second, first)]
    polling = await begin_poll(worker, second, *running, max_leases=1)
    monkeypatch.setattr(WorkerCall, "wake", lambda call: None)
    await first.submit(task="demo")
    await until(lambda: has_given(second))

    await second.submit(task="demo")
    answer = await polling

    assert len(answer["leases"]) == 1


async def get_full(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, has_ended: Callable[[], object]
) -> str:
    """Give the only slot of a worker to its gateway while a start at the owner is being stored.

    has_ended: whether that start may become durable now. Return the lease of the gateway.
    """
    _, first, second = cluster
    worker = HandWorker(slots=1)
    polling = await poll_after(worker, await take(worker, second, first), second)

    async def fill() -> None:
        await second.submit(task="demo")
        await polling
        await until(has_ended)

    delay_start(first, monkeypatch, fill)
    await first.submit(task="demo", delivery="at_most_once")
    return lease_of(await polling)


async def test_a_job_goes_back_at_once_if_the_worker_got_full_while_its_start_was_stored(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, _ = cluster
    parts = first.router._gateway._parts
    recall, recalled = parts.recall, asyncio.Event()

    def note_recall(asked: ClientRequest) -> Response:
        recalled.set()
        return recall(asked)

    monkeypatch.setattr(parts, "recall", note_recall)

    await get_full(cluster, monkeypatch, recalled.is_set)

    async with asyncio.timeout(WITHIN_S):
        assert lease_of(await HandWorker("v").begin_poll(first))


async def test_a_job_goes_back_if_the_worker_got_full_long_before_its_start_was_durable(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, _ = cluster
    parts = first.router._gateway._parts

    await get_full(cluster, monkeypatch, lambda: "w" not in parts._polls)

    waiting = HandWorker("v").begin_poll(first)
    await until(lambda: first.engine.sessions.held_by("w"))
    await pass_time(cluster, 1)
    assert lease_of(await waiting)


async def test_the_poll_of_a_worker_that_has_come_to_the_owner_itself_goes_on(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    polling = HandWorker().begin_poll(first)
    await until(lambda: "w" in first.app.context.workers)

    recall = msgspec.json.encode(Recall("w"))
    (owner,) = second.router.servers.others()
    await second.router.servers.ask(owner, "recall", recall, dict, WITHIN_S)
    await asyncio.wait([polling], timeout=SETTLED_S)

    assert not polling.done()
    polling.cancel()


async def test_an_owner_is_asked_less_often_while_no_worker_can_take_its_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=3, resources={"gpu": 1})
    gpu = {"task": "demo", "requires": {"resources": {"gpu": 1}}}
    polling = worker.begin_poll(second)
    await first.submit(**gpu)
    lease = lease_of(await polling)
    questions = count_questions(monkeypatch)
    polling = worker.begin_poll(second, lease)
    await first.submit(**gpu)
    await asyncio.wait([polling], timeout=AT_ONCE_S)

    assert questions() < SOME
    polling.cancel()
