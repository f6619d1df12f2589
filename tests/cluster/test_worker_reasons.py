"""Why a job waits: what the workers of all servers say, at whichever server is asked."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import hops
from schedo.core.worker_pool import WorkerSpec
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_unreachable import standing_in, stay_silent
from tests.cluster.workers import HandWorker
from tests.web.world import Reply


async def why(asked: MemberWorld, job: dict[str, Any]) -> Reply:
    reply = await asked.get(f"/v1/jobs/{job['id']}/why")
    assert reply.status == 200, reply
    return reply


def says(reply: Reply) -> list[tuple[str, str, str | None]]:
    workers = reply.json()["workers"]
    return [(each["worker"], each["server"], each.get("obstacle")) for each in workers]


def find(reply: Reply, what: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [c for c in reply.json()["checks"] if c["what"] == what]
    (check,) = found
    return check


async def test_a_job_waits_for_the_slots_of_a_worker_that_polls_another_server(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker("far", slots=1)
    await worker.take(second, task="demo")
    first.engine.attach(WorkerSpec("hands", 1, frozenset({"other"})), first.worker)
    job = await first.submit(task="demo")

    for asked in (first, second):
        reply = await why(asked, job)

        assert reply.json()["reasons"] == ["all 1 slots for task demo are taken"]
        assert find(reply, "worker")["text"] == "1 worker could run it"
        assert says(reply) == [("far", "host 2", "slots"), ("hands", "host 1", "task")]
        assert "schedo-unreachable" not in reply.headers


async def test_a_worker_that_runs_jobs_of_two_servers_is_named_once(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker("far", slots=3)
    await worker.poll(second)
    leases: list[str] = []
    for owner in (first, second):
        polling = worker.begin_poll(second, *leases)
        await owner.submit(task="demo")
        leases += [each["lease"] for each in (await polling)["leases"]]
    assert len(leases) == 2
    job = await first.submit(task="demo", requires={"labels": {"region": "eu"}})
    await worker.poll(second, *leases)

    for asked in (first, second):
        reply = await why(asked, job)

        assert reply.json()["reasons"] == ["no worker offers label region = eu"]
        assert says(reply) == [("far", "host 2", "requirements")]


async def test_workers_that_run_only_jobs_of_their_own_server_do_not_count(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    second.engine.attach(WorkerSpec("process-1", 3), second.worker)
    await second.engine.flush()
    job = await first.submit(task="demo")

    reply = await why(first, job)

    assert reply.json()["reasons"] == ["no worker offers task demo on queue default"]
    assert find(reply, "worker")["permanent"]
    assert reply.json()["workers"] == []


async def test_no_similar_task_is_meant_if_a_worker_of_another_server_offers_the_task(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(first.engine.tasks, "_is_any", False)  # as it is without the test's world
    await HandWorker("own").ask(first, tasks=["demos"], wait=0)
    needs = {"labels": {"region": "eu"}}
    job = await first.submit(task="demo", requires=needs)
    before = await why(first, job)
    await HandWorker("far").ask(second, tasks=["demo"], wait=0)

    after = await why(first, job)

    assert before.json()["why"] == (
        "no worker offers task demo on queue default; did you mean demos?"
    )
    assert after.json()["why"] == "no worker offers label region = eu"


async def test_a_server_that_does_not_respond_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, _, second = cluster
    monkeypatch.setattr("schedo.cluster.worker_reasons.GATHER_S", 0.05)
    job = await second.submit(task="demo")
    async with standing_in(everything, 1, stay_silent):
        reply = await why(second, job)

    assert reply.headers["schedo-unreachable"] == "host 1"
    assert reply.json()["why"] == (
        "no worker offers task demo on queue default, as far as is known without host 1"
    )
    assert not find(reply, "worker")["permanent"]


class EarlierHop(hops.Hop, frozen=True):
    """What a server of the version before understands."""

    purpose: Literal["forward", "confirm", "work", "surplus"]


async def test_a_server_of_the_version_before_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cluster(3) as (_, (first, second, third)):
        await HandWorker("far").poll(second)
        job = await first.submit(task="demo")
        check = third.router.servers.signer.check

        def check_as_before(*arguments: Any) -> hops.Hop:
            with monkeypatch.context() as earlier:
                earlier.setattr(hops, "_DECODER", msgspec.json.Decoder(EarlierHop))
                return check(*arguments)

        monkeypatch.setattr(third.router.servers.signer, "check", check_as_before)

        for asked in (first, second, third):
            reply = await why(asked, job)

            assert says(reply) == [("far", "host 2", "poll")]
            assert reply.headers["schedo-unreachable"] == "host 3"


async def test_a_response_that_is_not_understood_is_missing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    send = first.router.servers.peers.send

    async def garble(member: Any, hop: hops.Hop, *arguments: Any, **fields: Any) -> HttpResponse:
        response = await send(member, hop, *arguments, **fields)
        return response._replace(body=b'{"workers": 3}') if hop.purpose == "why" else response

    monkeypatch.setattr(first.router.servers.peers, "send", garble)

    reply = await why(first, await first.submit(task="demo"))

    assert reply.headers["schedo-unreachable"] == second.name


async def test_only_about_a_job_that_waits_the_others_are_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    first.attach_worker(slots=1)
    running, waiting = [await first.submit(task="demo") for _ in range(2)]
    await first.worker.first()
    asked: list[str] = []
    explain = first.router.explain_workers

    async def note(ready_key: Any) -> Any:
        asked.append(ready_key.task)
        return await explain(ready_key)

    monkeypatch.setattr(first.router, "explain_workers", note)

    replies = [await why(second, job) for job in (running, waiting)]

    assert [each.json()["state"] for each in replies] == ["running", "queued"]
    assert asked == ["demo"]


async def test_a_server_alone_names_no_server() -> None:
    async with running_cluster(1) as (_, (world,)):
        await HandWorker("w").poll(world)

        reply = await why(world, await world.submit(task="demo"))

        assert [each["worker"] for each in reply.json()["workers"]] == ["w"]
        assert "server" not in reply.json()["workers"][0]
