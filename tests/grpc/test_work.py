"""A worker on a stream: leases are pushed, and everything else is as docs/protocol.md says."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from schedo.grpc import schedo_pb2 as pb
from tests.grpc.calling import Client, Served, Stream
from tests.web.world import World

CODE = grpc.StatusCode
ME: dict[str, Any] = {"worker": "w1", "session": "s1", "tasks": ["resize"], "slots": 2}


@pytest.fixture
async def worker(client: Client) -> Stream:
    """A worker that is registered and idle."""
    stream = client.work()
    await stream.ask(**ME)
    return stream


async def begin(worker: Stream, world: World, **job: Any) -> pb.Lease:
    """Submit a job and return its lease."""
    await world.submit(task="resize", **job)
    (lease,) = (await worker.next()).leases
    return lease


def done(lease: pb.Lease, result: str = "1") -> list[pb.Result]:
    return [pb.Result(lease=lease.lease, outcome="completed", result=result)]


async def state(world: World, lease: pb.Lease) -> dict[str, Any]:
    job: dict[str, Any] = (await world.get(f"/v1/jobs/{lease.job}")).json()
    return job


async def test_the_first_response_says_that_the_worker_is_known(client: Client) -> None:
    response = await client.work().ask(**ME, session_timeout=60)

    assert (response.protocol, response.epoch) == (1, 1)
    assert (response.heartbeat, response.session_timeout) == (20, 60)


async def test_a_lease_is_pushed_and_its_result_confirmed(worker: Stream, world: World) -> None:
    lease = await begin(worker, world, payload={"n": 9007199254740993}, meta={"who": "ann"})

    confirmed = await worker.ask(results=done(lease, '{"bytes": 7}'))

    assert (lease.task, lease.payload, lease.meta) == (
        "resize",
        '{"n":9007199254740993}',
        '{"who":"ann"}',
    )
    assert not confirmed.refused
    job = await state(world, lease)
    assert (job["state"], job["result"], job["worker"]) == ("completed", {"bytes": 7}, "w1")


async def test_no_more_leases_are_pushed_than_slots_are_free(worker: Stream, world: World) -> None:
    leases = [await begin(worker, world) for _ in range(2)]
    third = await world.submit(task="resize")
    assert (await world.get(f"/v1/jobs/{third['id']}")).json()["state"] == "queued"

    await worker.send(results=done(leases[0]))

    found = [await worker.next() for _ in range(2)]  # the confirmation, and the next lease
    assert [lease.job for each in found for lease in each.leases] == [third["id"]]


async def test_every_kind_of_result_has_its_effect(worker: Stream, world: World) -> None:
    failed, snoozed = await begin(worker, world, retry=1), await begin(worker, world)
    error = pb.Failure(type="ValueError", message="no picture", exit_code=3)
    output = [pb.Output(stream="stdout", text="half\n", total_bytes=5)]

    await worker.ask(
        results=[
            pb.Result(lease=failed.lease, outcome="failed", error=error, output=output, ran=0.5),
            pb.Result(lease=snoozed.lease, outcome="snoozed", delay=60),
        ]
    )

    job = await state(world, failed)
    assert (job["state"], job["error"]) == (
        "failed",
        {"type": "ValueError", "message": "no picture", "exit_code": 3},
    )
    (kept,) = (await world.get(f"/v1/jobs/{failed.job}/output")).json()["items"]
    assert (kept["text"], kept["total_bytes"]) == ("half\n", 5)
    assert (await state(world, snoozed))["state"] == "scheduled"


async def test_a_stop_is_pushed_once(worker: Stream, world: World) -> None:
    lease = await begin(worker, world)
    await world.post(f"/v1/jobs/{lease.job}:cancel")

    pushed = await worker.next()
    progress = await worker.ask(progress=[pb.Progress(lease=lease.lease, percent=0)])
    await worker.ask(results=[pb.Result(lease=lease.lease, outcome="stopped")])

    assert [(stop.lease, stop.reason) for stop in pushed.stop] == [(lease.lease, "cancel")]
    assert not progress.stop
    assert (await state(world, lease))["state"] == "cancelled"


async def test_progress_reaches_the_server(worker: Stream, world: World) -> None:
    lease = await begin(worker, world)

    await worker.ask(progress=[pb.Progress(lease=lease.lease, percent=0, message="page 1")])

    (shown,) = (await world.get(f"/v1/jobs/{lease.job}/progress")).json()["items"]
    assert (shown["percent"], shown["message"]) == (0, "page 1")


async def test_a_worker_that_reconnects_keeps_what_it_runs(
    client: Client, worker: Stream, world: World
) -> None:
    kept, lost = await begin(worker, world), await begin(worker, world)
    worker.leave()
    again = client.work()

    response = await again.ask(**ME, running=[kept.lease])
    (repeated,) = response.leases  # the worker never got the other one
    await again.ask(results=done(kept))

    assert not response.revoked
    assert (repeated.job, repeated.attempt, repeated.lease != lost.lease) == (
        lost.job,
        2,
        True,
    )
    job = await state(world, kept)
    assert (job["state"], job["attempt"], job["losses"]) == ("completed", 1, 0)


async def test_results_from_before_the_reconnect_count_in_the_first_message(
    client: Client, worker: Stream, world: World
) -> None:
    lease = await begin(worker, world)
    worker.leave()

    await client.work().ask(**ME, results=done(lease))

    assert (await state(world, lease))["state"] == "completed"


async def test_an_attempt_that_the_worker_does_not_hold_is_revoked(client: Client) -> None:
    strange = "01K3ZQ8XJ5V00.1.7"
    stream = client.work()

    response = await stream.ask(**ME, running=[strange])
    late = await stream.ask(results=[pb.Result(lease=strange, outcome="completed")])

    assert list(response.revoked) == [strange]
    assert [(each.lease, each.code) for each in late.refused] == [(strange, "stale-lease")]


async def test_a_bad_message_is_refused_alone(worker: Stream, world: World) -> None:
    lease = await begin(worker, world)

    unknown = await worker.ask(results=[pb.Result(lease=lease.lease, outcome="finished")])
    no_json = await worker.ask(results=done(lease, "{"))
    await worker.ask(results=done(lease))

    assert (unknown.problem.status, unknown.problem.code) == (422, "invalid")
    assert [error.pointer for error in unknown.problem.errors] == ["/results/0/outcome"]
    assert [error.pointer for error in no_json.problem.errors] == ["/results/0/result"]
    assert (await state(world, lease))["state"] == "completed"


async def test_the_first_message_describes_the_worker(client: Client) -> None:
    nameless, unnamed = client.work(), client.work()
    await nameless.send(slots=2)
    await unnamed.send(worker="process-7")

    assert (await nameless.ended())[0] == CODE.INVALID_ARGUMENT
    assert "a name that the server uses itself" in (await unnamed.ended())[1]


async def test_a_later_description_replaces_the_first_one(worker: Stream, world: World) -> None:
    await worker.ask(**ME | {"tasks": ["resize", "crop"], "slots": 5})
    await world.submit(task="crop")

    assert [lease.task for lease in (await worker.next()).leases] == ["crop"]
    seen = (await world.get("/v1/workers/w1")).json()
    assert (sorted(seen["tasks"]), seen["slots"]) == (["crop", "resize"], 5)


async def test_a_stream_belongs_to_one_worker(worker: Stream) -> None:
    await worker.send(**ME | {"worker": "w2"})

    assert await worker.ended() == (
        CODE.INVALID_ARGUMENT,
        "/worker: it stays the same in a stream",
    )


async def test_a_worker_that_is_replaced_gets_no_second_chance(
    client: Client, worker: Stream
) -> None:
    await client.work().ask(**ME | {"session": "s2"})

    code, why = await worker.ended()

    assert (code, "another process has taken the name" in why) == (CODE.FAILED_PRECONDITION, True)


async def test_an_earlier_stream_of_the_same_process_ends(
    client: Client, worker: Stream, world: World
) -> None:
    lease = await begin(worker, world)

    again = client.work()
    response = await again.ask(**ME, running=[lease.lease])

    assert (await worker.ended())[0] == CODE.ABORTED
    assert not response.revoked
    await again.ask(results=done(lease))
    assert (await state(world, lease))["attempt"] == 1


async def test_an_offer_is_accepted_or_rejected(client: Client, world: World) -> None:
    worker = client.work()
    await worker.ask(**ME, offers=True)
    first = asyncio.create_task(client.call("Invoke", task="resize", wait="0s"))
    (offer,) = (await worker.next()).leases
    accepted = await worker.ask(accept=[offer.lease])
    second = asyncio.create_task(client.refused("Invoke", task="resize", wait="0s"))
    (other,) = (await worker.next()).leases
    await worker.ask(reject=[pb.Rejection(lease=other.lease, reason="no memory left")])

    assert (offer.offer, list(accepted.revoked)) == (True, [])
    assert [job.id for job in (await first).items] == [offer.job]
    assert (await second).reason == "no-capacity"


async def test_a_draining_worker_ends_its_attempts_and_then_its_stream(
    worker: Stream, world: World
) -> None:
    lease = await begin(worker, world)
    await worker.ask(draining=True)
    await world.submit(task="resize")

    await worker.ask(results=done(lease))

    assert await worker.ended() == (CODE.OK, "")
    assert (await world.get("/v1/workers/w1")).json()["state"] == "disconnected"
    assert (await world.get("/v1/jobs?state=queued")).json()["items"]


async def test_a_worker_is_told_once_that_it_should_drain(worker: Stream, world: World) -> None:
    lease = await begin(worker, world)
    await world.post("/v1/workers/w1:drain")

    pushed = await worker.next()
    await worker.ask(results=done(lease), draining=True)

    assert pushed.drain
    assert await worker.ended() == (CODE.OK, "")


async def test_a_worker_that_dies_loses_its_attempts(
    client: Client, worker: Stream, world: World
) -> None:
    lease = await begin(worker, world)

    worker.leave()

    job = await state(world, lease)
    while job["state"] == "running":
        # It has 5 s to connect again.
        await world.clock.run_until(world.engine, world.clock.now() + 1_000_000)
        await client.call("Get", id=lease.job)
        job = await state(world, lease)
    assert (job["state"], job["losses"], job["failures"]) == ("queued", 1, 0)


async def test_the_stream_ends_when_the_server_stops(served: Served, worker: Stream) -> None:
    served.world.app.drain()

    assert (await worker.ended())[0] == CODE.UNAVAILABLE


async def test_the_stream_ends_when_another_process_answers(served: Served, worker: Stream) -> None:
    served.server.pass_on()

    assert (await worker.ended())[0] == CODE.UNAVAILABLE
