"""What the code of an application asks of a server that does not own the job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import app_calls
from schedo.cluster.app_calls import AppCalls
from schedo.core import limits
from schedo.core.ids import parse_id
from schedo.core.leases import AttemptResult, Completed
from schedo.core.limits import DEFAULT_QUEUE
from schedo.core.model import JobSpec, Options, Unique
from schedo.core.shards import SHARDS, shard_of
from schedo.errors import DuplicateKey, NotFound, PeerUnreachable, SchedoError, Unavailable
from schedo.protocol.jobs import SubmittedJob
from schedo.worker.engine_backend import EngineBackend
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_forwarding import has_job, text_of
from tests.cluster.test_unreachable import hang_up, standing_in
from tests.passes import one_pass
from tests.web.world import SECOND

LONG_S = 30.0


def backend_of(world: MemberWorld) -> EngineBackend:
    """Return the backend of the tasks that this server runs."""
    world.engine.others = AppCalls(world.router.servers)
    return EngineBackend(world.engine)


def make_spec(key: str | None = None, queue: str = DEFAULT_QUEUE) -> JobSpec:
    unique = None if key is None else Unique(key)
    options = Options(unique=unique)
    return JobSpec("demo", b"{}", queue=queue, delay_us=3_600 * SECOND, options=options)


async def submit(backend: EngineBackend, *specs: JobSpec) -> list[SubmittedJob]:
    found = await backend.submit_specs(specs)
    assert not [each for each in found if isinstance(each, SchedoError)], found
    return [each for each in found if isinstance(each, SubmittedJob)]


async def test_a_unique_job_of_a_task_is_made_by_the_owner_of_its_key(cluster: Cluster) -> None:
    _, first, second = cluster
    theirs = text_of(first)
    own = text_of(second)

    jobs = await submit(backend_of(second), make_spec(theirs), make_spec(), make_spec(own))

    assert [await has_job(first, job.id) for job in jobs] == [True, False, False]
    assert [await has_job(second, job.id) for job in jobs] == [False, True, True]


async def test_a_task_learns_which_job_of_another_server_holds_the_key(cluster: Cluster) -> None:
    _, first, second = cluster
    holder = await first.submit(unique=text_of(first), delay="1h")

    (found,) = await submit(backend_of(second), make_spec(text_of(first)))

    assert (found.id, found.is_conflict) == (holder["id"], True)


async def test_an_error_of_another_server_concerns_only_its_job(cluster: Cluster) -> None:
    _, first, second = cluster
    key = text_of(first)
    await first.submit(unique=key, delay="1h")
    refused = JobSpec("demo", b"{}", options=Options(unique=Unique(key, on_conflict="reject")))

    error, job = await backend_of(second).submit_specs([refused, make_spec()])

    assert isinstance(error, DuplicateKey)
    assert isinstance(job, SubmittedJob)


async def test_a_task_submits_jobs_at_a_server_that_owns_no_shard(cluster: Cluster) -> None:
    everything, first, second = cluster
    everything.give(range(SHARDS), 1)

    jobs = await submit(backend_of(second), make_spec(), make_spec(text_of(first)))

    assert [await has_job(first, job.id) for job in jobs] == [True, True]


async def test_a_job_of_a_task_for_a_queue_with_a_limit_is_made_by_the_home_of_the_queue(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    queue = text_of(first, "queue")
    await second.patch(f"/v1/queues/{queue}", {"concurrency": 1})

    limited, keyed, other = await submit(
        backend_of(second), make_spec(queue=queue), make_spec(text_of(second), queue), make_spec()
    )

    assert await has_job(first, limited.id)
    assert await has_job(second, keyed.id)
    assert await has_job(second, other.id)


async def test_a_task_of_a_server_without_shards_submits_to_the_home_of_a_queue_with_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app_calls, "MOVING_S", 0.05)
    async with running_cluster(3) as (everything, (first, second, third)):
        queue = text_of(second, "queue")
        await first.patch(f"/v1/queues/{queue}", {"concurrency": 1})
        everything.give([s for s in range(SHARDS) if third.cluster.is_mine(s)], 1)

        (job,) = await submit(backend_of(third), make_spec(queue=queue))

        assert await has_job(second, job.id)


async def test_a_submit_waits_while_the_shard_of_its_key_moves(cluster: Cluster) -> None:
    everything, first, second = cluster
    key = text_of(first)
    everything.give([shard_of(key)], None)
    submitting = asyncio.create_task(submit(backend_of(second), make_spec(key), make_spec()))
    await one_pass()

    everything.give([shard_of(key)], 2)

    jobs = await submitting
    assert [await has_job(second, job.id) for job in jobs] == [True, True]


async def test_a_submit_fails_alone_whose_key_has_no_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    monkeypatch.setattr(app_calls, "MOVING_S", 0.0)
    key = text_of(first)
    everything.give([shard_of(key)], None)

    error, job = await backend_of(second).submit_specs([make_spec(key), make_spec()])

    assert isinstance(error, Unavailable)
    assert isinstance(job, SubmittedJob)
    assert await has_job(second, job.id)


async def test_many_jobs_for_another_server_are_made_once_although_it_moves_between_two_requests(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    everything.give(range(SHARDS), 1)
    monkeypatch.setattr(limits, "BATCH_JOBS_MAX", 2)
    send, sent = second.router.servers.peers.send, list[bytes]()

    async def fail_once(member: Any, hop: Any, body: bytes, *more: Any) -> HttpResponse:
        """Refuse the second request: the server has given its shards away and got them again."""
        sent.append(body)
        if len(sent) == 2:
            raise PeerUnreachable("it moves")
        return await send(member, hop, body, *more)

    monkeypatch.setattr(second.router.servers.peers, "send", fail_once)

    jobs = await submit(backend_of(second), *(make_spec() for _ in range(4)))

    made = (await first.get("/v1/jobs")).json()["items"]
    assert sorted(job.id for job in jobs) == sorted(job["id"] for job in made)
    assert len(made) == 4


async def test_a_task_waits_for_a_job_of_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    first.attach_worker()
    job = await first.submit()
    waiting = asyncio.create_task(backend_of(second).wait(job["id"], LONG_S))

    lease = await first.worker.first()
    first.engine.report(AttemptResult(lease.key, Completed(b"7")))

    record = await waiting
    assert (record["state"], record["result"]) == ("completed", 7)


async def test_a_task_cancels_a_job_of_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    job = await first.submit(delay="1h")

    record = await backend_of(second).cancel(job["id"])

    assert record["state"] == "cancelled"
    assert (await first.engine.get(parse_id(job["id"]))).state == "cancelled"


@pytest.mark.parametrize("call", ["cancel", "wait"])
async def test_a_call_of_a_task_ends_although_the_owner_ends_each_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    everything, first, second = cluster
    monkeypatch.setattr(app_calls, "MOVING_S", 0.05)
    backend = backend_of(second)
    job = await first.submit(delay="1h")
    calls = {"cancel": backend.cancel(job["id"]), "wait": backend.wait(job["id"], LONG_S)}
    async with standing_in(everything, 1, hang_up), asyncio.timeout(2):
        with pytest.raises(SchedoError, match="host 1"):
            await calls.pop(call)
    for each in calls.values():
        each.close()


async def test_a_task_gets_an_error_for_a_job_that_no_server_has(cluster: Cluster) -> None:
    _, _, second = cluster
    job = await second.submit(delay="1h")
    await second.engine.cancel(parse_id(job["id"]))
    await second.engine.delete(parse_id(job["id"]))

    with pytest.raises(NotFound, match=job["id"]):
        await backend_of(second).cancel(job["id"])
    with pytest.raises(NotFound, match=job["id"]):
        await backend_of(second).wait(job["id"], LONG_S)
