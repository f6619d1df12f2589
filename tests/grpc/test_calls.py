"""The calls with one request do what the requests of the HTTP API do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import grpc.aio
import pytest

from schedo.core.leases import AttemptResult, Completed, Failed
from schedo.core.model import Failure
from schedo.grpc import schedo_pb2 as pb
from tests.grpc.calling import Client
from tests.web.world import World

CODE = grpc.StatusCode


async def test_a_job_can_be_submitted_read_and_cancelled(client: Client, world: World) -> None:
    made = await client.call(
        "Submit",
        task="resize",
        queue="images",
        payload='{"n": 1}',
        priority=7,
        delay="90s",
        tags=["a", "b"],
        meta='{"who": "ann"}',
        retry="3",
    )
    read = await client.call("Get", id=made.id)
    cancelled = await client.call("Cancel", id=made.id)
    stored = (await world.get(f"/v1/jobs/{made.id}")).json()

    assert (made.state, made.queue, made.priority, made.max_attempts) == (
        "scheduled",
        "images",
        7,
        3,
    )
    assert (json.loads(made.payload), list(made.tags), json.loads(made.meta)) == (
        {"n": 1},
        ["a", "b"],
        {"who": "ann"},
    )
    assert made == read
    assert (cancelled.state, stored["state"]) == ("cancelled", "cancelled")


async def test_a_submit_can_wait_for_the_end_of_its_job(client: Client, world: World) -> None:
    world.attach_worker()
    submitting = asyncio.create_task(client.call("Submit", task="resize", wait="10s"))
    lease = await world.worker.first()

    world.engine.report(AttemptResult(lease.key, Completed(b'{"bytes": 9007199254740993}')))

    job = await submitting
    assert (job.state, job.result) == ("completed", '{"bytes": 9007199254740993}')


async def test_a_call_with_the_same_key_makes_no_second_job(client: Client) -> None:
    key = (("idempotency-key", "k1"),)

    first, second = [
        await client.call("Submit", metadata=key, task="resize", delay="1h") for _ in range(2)
    ]
    other = await client.refused("Submit", metadata=key, task="resize", delay="2h")

    assert first.id == second.id
    assert (other.code, other.reason) == (CODE.INVALID_ARGUMENT, "idempotency-mismatch")


@pytest.mark.parametrize("name", ["Submit", "SubmitBatch"])
async def test_a_job_continues_the_trace_of_the_metadata(client: Client, name: str) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    trace = (("traceparent", parent), ("tracestate", "vendor=1"))
    job = pb.SubmitRequest(task="resize", delay="1h")
    fields: Any = {"task": "resize", "delay": "1h"} if name == "Submit" else {"jobs": [job]}

    answer = await client.call(name, metadata=trace, **fields)
    submitted = answer if name == "Submit" else answer.items[0].job

    assert (submitted.traceparent, submitted.tracestate) == (parent, "vendor=1")


async def test_each_job_of_a_batch_has_its_own_result(client: Client) -> None:
    jobs = [
        pb.SubmitRequest(task="resize", payload="[1]", unique='"u"'),
        pb.SubmitRequest(task="resize", unique='"u"'),
        pb.SubmitRequest(task="no task"),
    ]

    made = await client.call("SubmitBatch", jobs=jobs)
    minimal = await client.call("SubmitBatch", jobs=jobs[:1], minimal=True)

    assert [item.status for item in made.items] == [201, 200, 422]
    assert made.items[1].job.conflict
    assert made.items[0].job.id == made.items[1].job.id == minimal.items[0].job.id
    assert [error.pointer for error in made.items[2].problem.errors] == ["/task"]
    assert (made.items[0].job.payload, minimal.items[0].job.payload) == ("[1]", "")


async def test_a_job_of_a_batch_cannot_wait(client: Client, world: World) -> None:
    refused = await client.refused("SubmitBatch", jobs=[pb.SubmitRequest(task="a", wait="1s")])

    assert (refused.code, "/jobs/0/wait" in refused.detail) == (CODE.INVALID_ARGUMENT, True)
    assert (await world.get("/v1/jobs")).json()["items"] == []


async def test_an_invocation_runs_now_and_returns_every_job(client: Client, world: World) -> None:
    world.attach_worker()

    placed = await client.call("Invoke", task="resize", count=2, wait="0s")

    assert [job.state for job in placed.items] == ["running", "running"]


async def test_an_invocation_without_a_worker_is_refused(client: Client) -> None:
    refused = await client.refused("Invoke", task="resize")

    assert (refused.code, refused.reason) == (CODE.UNAVAILABLE, "no-capacity")


async def test_an_invocation_that_fails_ends_its_call(client: Client, world: World) -> None:
    world.attach_worker()
    invoking = asyncio.create_task(client.refused("Invoke", task="resize"))
    lease = await world.worker.first()

    world.engine.report(AttemptResult(lease.key, Failed(Failure("ValueError", "no picture"))))

    refused = await invoking
    assert (refused.code, refused.reason) == (CODE.ABORTED, "invocation-failed")
    assert "no picture" in refused.detail


async def test_a_full_worker_is_worth_another_try(client: Client, world: World) -> None:
    world.attach_worker(slots=1)
    await client.call("Invoke", task="resize", wait="0s")

    refused = await client.refused("Invoke", task="resize")

    assert (refused.code, refused.reason, refused.retry_s) == (CODE.UNAVAILABLE, "no-capacity", 1)


async def test_a_bad_field_is_named_and_changes_nothing(client: Client, world: World) -> None:
    refused = await client.refused("Submit", task="resize", delay="soon")
    no_json = await client.refused("Submit", task="resize", payload='1, "queue": "other"')

    assert (refused.code, refused.reason, list(refused.fields)) == (
        CODE.INVALID_ARGUMENT,
        "invalid",
        ["/delay"],
    )
    assert (no_json.reason, list(no_json.fields)) == ("bad-json", ["/payload"])
    assert (await world.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize("id_", ["", "nothing", "../queues", "x?wait=1"], ids=repr)
async def test_an_id_that_is_none_finds_no_job(client: Client, id_: str) -> None:
    for name in ("Get", "Cancel"):
        refused = await client.refused(name, id=id_)

        assert refused.code == (CODE.NOT_FOUND if id_ else CODE.INVALID_ARGUMENT)


async def test_large_messages_arrive_whole_up_to_the_limits_of_http(client: Client) -> None:
    payload = json.dumps("x" * 1_000_000)
    many = [pb.SubmitRequest(task="a", payload=json.dumps("x" * 60_000))] * 100

    made, batch = await asyncio.gather(
        client.call("Submit", task="a", payload=payload), client.call("SubmitBatch", jobs=many)
    )
    too_large = await client.refused("Submit", task="a", payload=json.dumps("x" * 1_100_000))
    far_too_large = await client.refused("Submit", task="a", payload="x" * 9_000_000)

    assert made.payload == payload
    assert {item.status for item in batch.items} == {201}
    assert (too_large.code, too_large.reason) == (CODE.INVALID_ARGUMENT, "too-large")
    assert (far_too_large.code, "8388608" in far_too_large.detail) == (CODE.INVALID_ARGUMENT, True)


async def test_a_call_ends_at_its_deadline(client: Client, world: World) -> None:
    job = await world.submit(delay="1h")

    refused = await client.refused("Get", id=job["id"], wait="1m", deadline_s=0.05)

    assert refused.code == CODE.DEADLINE_EXCEEDED


async def test_what_is_no_call_is_refused(client: Client) -> None:
    unknown = client.channel.unary_unary("/schedo.v1.Schedo/Destroy")
    garbage = client.channel.unary_unary("/schedo.v1.Schedo/Submit")

    codes = []
    for call in (unknown, garbage):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff\xff")
        codes.append(caught.value.code())

    assert codes == [CODE.UNIMPLEMENTED, CODE.INVALID_ARGUMENT]


async def test_the_health_check_says_whether_the_server_is_ready(
    client: Client, world: World
) -> None:
    check = client.channel.unary_unary("/grpc.health.v1.Health/Check")
    serving = [await check(asked) for asked in (b"", b"\x0a\x10schedo.v1.Schedo")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(b"\x0a\x05other")

    assert serving == [b"\x08\x01", b"\x08\x01"]
    assert caught.value.code() == CODE.NOT_FOUND


async def test_calls_run_at_the_same_time_on_one_connection(client: Client, world: World) -> None:
    job = await world.submit(delay="1h")
    waiting = [asyncio.create_task(client.call("Get", id=job["id"], wait="30s")) for _ in range(9)]

    await client.call("Cancel", id=job["id"])

    assert {each.state for each in await asyncio.gather(*waiting)} == {"cancelled"}
