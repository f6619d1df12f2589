"""A worker polls one server, and runs attempts of jobs that others own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from schedo.cluster import owner_requests
from schedo.core import held_leases
from schedo.core.ids import parse_id
from schedo.core.limits import MINUTE
from schedo.core.shards import SHARDS
from schedo.core.states import State
from schedo.protocol.leases import parse_lease
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.workers import HandWorker, holds, lease_of, result


async def state_of(world: MemberWorld, lease: str) -> State:
    return (await world.engine.get(parse_lease(lease).job_id)).state


async def test_a_result_reaches_the_owner_of_its_job(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")

    answer = await worker.poll(second, results=[result(lease, result=7)])

    assert (answer["refused"], answer["revoked"]) == ([], [])
    job = await first.engine.get(parse_lease(lease).job_id)
    assert (job.state, job.result) == (State.COMPLETED, b"7")


async def test_an_attempt_goes_on_when_its_worker_polls_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")

    answer = await worker.poll(second, lease)

    assert answer["revoked"] == []
    assert holds(first, lease)
    assert not holds(second, lease)
    assert await state_of(first, lease) is State.RUNNING


async def test_attempts_of_several_servers_end_with_one_request(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    theirs = await worker.take(first, task="demo")
    own = await worker.take(second, task="demo")

    answer = await worker.poll(second, results=[result(own), result(theirs)])

    assert answer["refused"] == []
    assert await state_of(first, theirs) is State.COMPLETED
    assert await state_of(second, own) is State.COMPLETED


async def test_an_attempt_of_another_server_takes_a_slot(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lease = await worker.take(first, task="demo")
    await second.submit(task="demo")

    full = await worker.poll(second, lease)
    free = await worker.poll(second, results=[result(lease)])

    assert full["leases"] == []
    assert len(free["leases"]) == 1


async def test_an_invocation_takes_no_slot_that_an_attempt_of_another_server_has(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)

    replies = [await each.post("/v1/invoke", {"task": "demo", "wait": 0}) for each in cluster[1:]]

    assert [reply.code for reply in replies] == ["no-capacity"] * 2


async def test_a_stop_of_the_owner_reaches_the_worker(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await second.post(f"/v1/jobs/{lease[:13]}:cancel")

    answer = await worker.poll(second, lease)

    assert answer["stop"] == [{"lease": lease, "reason": "cancel"}]


async def test_the_owner_revokes_what_the_worker_does_not_hold(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await worker.poll(first, results=[result(lease)])
    stale = f"{lease[:-1]}9"

    answer = await worker.poll(second, stale, results=[result(lease, result=8)])

    assert answer["revoked"] == [stale]
    assert [each["lease"] for each in answer["refused"]] == [lease]


async def test_a_lease_of_a_job_that_is_deleted_is_revoked(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await worker.poll(first, results=[result(lease)])
    await first.send("DELETE", f"/v1/jobs/{lease[:13]}")

    assert (await worker.poll(second, lease))["revoked"] == [lease]


async def test_progress_reaches_the_owner(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")

    await worker.ask(second, max_leases=0, progress=[{"lease": lease, "message": "half"}])

    line = first.engine.sessions.last_progress_of(parse_lease(lease).job_id)
    assert line is not None
    assert line.progress.update.message == "half"


async def test_an_offer_of_another_server_is_accepted_through_the_gateway(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    polling = asyncio.create_task(worker.poll(first, wait=20, offers=True))
    invoking = asyncio.create_task(first.post("/v1/invoke", {"task": "demo", "wait": "10s"}))
    lease = lease_of(await polling)

    await worker.poll(second, accept=[lease], offers=True)
    await worker.poll(second, results=[result(lease, result=1)])

    assert (await invoking).json()["result"] == 1


async def test_a_bad_entry_refuses_the_whole_request_before_any_server_has_its_part(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")

    bad = {"lease": f"{lease[:-1]}9", "outcome": "snoozed"}
    reply = await worker.send(second, running=[], results=[result(lease), bad])

    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "/results/1/delay")
    assert await state_of(first, lease) is State.RUNNING


async def test_an_idle_worker_of_a_server_that_drains_polls_another_one(cluster: Cluster) -> None:
    everything, first, second = cluster
    waiting = HandWorker("waits").begin_poll(second)
    await HandWorker().poll(second)
    everything.members[:] = [second.cluster.me]  # it has not heard of the other one again

    second.app.drain()

    assert (await waiting)["leases"] == []
    assert (await HandWorker().poll(second))["leases"] == []
    first.app.context.cluster = None  # a server that shares no store sends it away
    first.app.drain()
    assert (await HandWorker().send(first)).status == 503


async def test_the_last_server_revokes_nothing_before_it_has_the_shards_of_the_dead_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_requests, "MOVING_S", 0.0)
    everything, first, second = cluster
    worker = HandWorker()
    running, ended = await worker.take(first, task="demo"), await worker.take(first, task="demo")
    everything.members[:] = [member for member in everything.members if member.no == 2]

    answer = await worker.poll(second, running, ended)
    reply = await worker.send(second, running=[running], results=[result(ended)])

    assert answer["revoked"] == []
    assert (reply.status, reply.code) == (503, "unavailable")


async def test_an_attempt_whose_owner_is_unknown_is_not_revoked(cluster: Cluster) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    everything.give(range(SHARDS), None)

    assert (await worker.poll(second, lease))["revoked"] == []


async def test_a_server_revokes_nothing_of_a_job_that_is_not_its_own_any_more(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    unknown = f"{lease[:-1]}9"
    second.cluster.believed = dict.fromkeys(range(SHARDS), 1)
    everything.owners = [3] * SHARDS  # the first one has noticed that

    assert (await worker.poll(second, unknown))["revoked"] == []


async def test_a_new_process_of_the_worker_ends_what_the_old_one_ran_elsewhere(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)
    worker.description["session"] = "s2"

    await worker.poll(second)

    assert not holds(first, lease)
    assert (await first.engine.get(parse_id(lease[:13]))).losses == 1


async def test_a_process_whose_name_another_one_has_taken_hears_of_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_requests, "LATE_S", 5.0)  # else a busy owner tells its next poll
    _, first, second = cluster
    worker, other = HandWorker(), HandWorker()
    lease = await worker.take(first, task="demo")
    other.description["session"] = "s2"
    await other.poll(first)

    reply = await worker.send(second, running=[lease], wait=0)

    assert (reply.status, reply.code) == (409, "worker-replaced")


async def test_a_request_that_is_no_json_is_refused_by_its_handler(cluster: Cluster) -> None:
    _, _, second = cluster

    assert (await second.send("POST", "/v1/work", b"{")).status == 400


async def test_a_client_cannot_send_what_only_a_gateway_says(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lease = await worker.take(first, task="demo")
    await worker.poll(first, results=[result(lease)])

    polling = asyncio.create_task(worker.poll(second, wait=20, elsewhere=[lease], relayed=True))
    await second.submit(task="demo")

    assert len((await polling)["leases"]) == 1


async def test_an_attempt_whose_result_is_taken_for_another_servers_is_not_missing_at_its_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_leases, "IN_FLIGHT_US", -MINUTE)  # no list is too old to count
    _, first, second = cluster
    worker = HandWorker()
    ended = await worker.take(first, task="demo")
    polling = worker.begin_poll(first, ended)
    await first.submit(task="demo")
    running = lease_of(await polling)
    look = second.cluster.shards_of_jobs

    async def look_wrong(job_ids: Sequence[int]) -> dict[int, int]:
        monkeypatch.setattr(second.cluster, "shards_of_jobs", look)
        return await look(job_ids) | {parse_lease(ended).job_id: second.number - 1}

    monkeypatch.setattr(second.cluster, "shards_of_jobs", look_wrong)
    answer = await worker.poll(second, running, results=[result(ended)])

    assert answer["refused"] == []
    assert await state_of(first, ended) is State.COMPLETED
