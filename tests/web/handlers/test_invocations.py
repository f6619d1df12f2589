"""Invocations and reservations over HTTP: a job runs right now or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo.core.model import ONCE, JobSpec, Options
from schedo.core.requirements import Condition, Preference, Requirements
from schedo.core.states import State
from schedo.errors import NoCapacity, Unsatisfiable
from schedo.web.settings import WebSettings
from tests.web.placing import Invoked, PlacingWorld, make_job
from tests.web.world import Reply


@pytest.fixture
async def world() -> AsyncIterator[PlacingWorld]:
    async with PlacingWorld() as made:
        made.placing.jobs = [make_job()]
        yield made


async def invoke(world: PlacingWorld, **fields: Any) -> Reply:
    return await world.post("/v1/invoke", {"task": "increment", **fields})


async def test_the_fields_of_an_invocation_reach_the_engine(world: PlacingWorld) -> None:
    await invoke(
        world,
        payload={"Num": 1},
        queue="q",
        requires={"labels": {"region": "eu"}, "resources": {"cpu": 3}, "worker": "w1"},
        prefer=[{"zone": "lhr"}, {}],
        count=2,
        wait="5s",
        timeout="9s",
        tags=["a"],
        meta={"m": 1},
    )

    route = Requirements(
        (Condition("region", "=", ("eu",)),),
        (("cpu", 3_000),),
        "w1",
        (Preference((Condition("zone", "=", ("lhr",)),), 2.0), Preference((), 1.0)),
    )
    options = Options(ONCE, 9_000_000, True, tags=("a",), meta={"m": 1}, requirements=route)
    spec = JobSpec("increment", b'{"Num":1}', "q", options=options)
    assert world.placing.calls == [Invoked(spec, 2, 5.0)]


async def test_a_lost_invocation_fails_unless_it_may_run_again(world: PlacingWorld) -> None:
    await invoke(world)
    await invoke(world, on_loss="fail")
    await invoke(world, on_loss="retry_once")

    specs = [call.spec for call in world.placing.calls]
    assert [spec and spec.options.at_most_once for spec in specs] == [True, True, False]
    assert [spec and spec.options.retry for spec in specs] == [ONCE, ONCE, ONCE]


async def test_an_invocation_that_ends_within_its_wait_returns_200_with_the_result(
    world: PlacingWorld,
) -> None:
    reply = await invoke(world)

    assert (reply.status, reply.json()["result"]) == (200, {"Num": 2})
    assert reply.headers["location"] == "/v1/jobs/0000000000007"
    assert world.placing.calls[0].wait_s == 30.0


async def test_an_invocation_without_a_wait_returns_201_when_a_worker_has_accepted_it(
    world: PlacingWorld,
) -> None:
    world.placing.jobs = [make_job(State.RUNNING)]

    reply = await invoke(world, wait=0)

    assert (reply.status, reply.json()["worker"]) == (201, "w1")
    assert reply.headers["location"] == "/v1/jobs/0000000000007"


async def test_an_invocation_that_outlasts_its_wait_returns_202(world: PlacingWorld) -> None:
    world.placing.jobs = [make_job(State.RUNNING)]

    reply = await invoke(world, wait="1s")

    assert (reply.status, reply.json()["state"]) == (202, "running")
    assert reply.headers["location"] == "/v1/jobs/0000000000007"


async def test_an_invocation_of_several_jobs_returns_them_as_items(world: PlacingWorld) -> None:
    world.placing.jobs = [make_job(), make_job(id=8)]

    reply = await invoke(world, count=2)

    assert reply.status == 200
    assert [job["id"] for job in reply.json()["items"]] == ["0000000000007", "0000000000008"]
    assert "location" not in reply.headers


async def test_the_error_of_the_worker_is_in_the_response(world: PlacingWorld) -> None:
    world.placing.jobs = [make_job(State.FAILED)]

    reply = await invoke(world)

    assert (reply.status, reply.code) == (502, "invocation-failed")
    assert reply.json()["detail"] == "job 0000000000007 is failed: no number"
    assert reply.json()["job"]["error"] == {"type": "ValueError", "message": "no number"}


async def test_one_failed_job_of_several_fails_the_invocation_and_all_are_shown(
    world: PlacingWorld,
) -> None:
    world.placing.jobs = [make_job(), make_job(State.CANCELLED, id=8)]

    reply = await invoke(world, count=2)

    assert (reply.status, reply.code) == (502, "invocation-failed")
    assert reply.json()["detail"] == "job 0000000000008 is cancelled"
    assert [job["state"] for job in reply.json()["jobs"]] == ["completed", "cancelled"]


async def test_a_no_capacity_problem_counts_workers_and_their_reasons(
    world: PlacingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.placing.error = NoCapacity("all are busy", 5, {"no_slots": 2, "label_mismatch": 3}, 2)

    reply = await invoke(world)

    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "no-capacity", "2")
    assert reply.json()["considered"] == 5
    assert reply.json()["rejected"] == {"no_slots": 2, "label_mismatch": 3}
    assert caplog.records == []


async def test_an_unsatisfiable_invocation_returns_422(world: PlacingWorld) -> None:
    world.placing.error = Unsatisfiable("no worker has the label gpu")

    reply = await invoke(world)

    assert (reply.status, reply.code) == (422, "unsatisfiable")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"task": None}, "/task"),
        ({"task": "a b"}, "/task"),
        ({"queue": ""}, "/queue"),
        ({"count": 0}, "/count"),
        ({"count": 1_001}, "/count"),
        ({"wait": "6m"}, "/wait"),
        ({"wait": "soon"}, "/wait"),
        ({"timeout": 0}, "/timeout"),
        ({"on_loss": "panic"}, "/on_loss"),
        ({"delay": "5s"}, "/delay"),
        ({"requires": {"labels": {"a": {}}}}, "/requires/labels/a"),
        ({"prefer": {}}, "/prefer"),
        ({"meta": {"x": "y" * 5_000}}, "/meta"),
        ({"payload": "x" * 1_048_000, "tags": ["a b"]}, "/tags/0"),
    ],
    ids=lambda value: ascii(value)[:50],
)
async def test_a_bad_field_of_an_invocation_is_named_and_no_offer_is_made(
    world: PlacingWorld, fields: dict[str, Any], pointer: str
) -> None:
    reply = await invoke(world, **fields)

    assert (reply.status, reply.code) == (422, "invalid")
    assert [each["pointer"] for each in reply.json()["errors"]] == [pointer]
    assert world.placing.calls == []


async def test_an_idempotency_key_of_an_invocation_is_refused(world: PlacingWorld) -> None:
    key = [("idempotency-key", "k")]

    for path, body in (
        ("/v1/invoke", {"task": "a"}),
        ("/v1/reservations", {}),
        ("/v1/reservations/r1:commit", {"task": "a"}),
        ("/schedule", {"Task": "a"}),
    ):
        assert (await world.post(path, body, key)).code == "bad-request"
    assert world.placing.calls == []


async def test_a_client_that_disconnects_ends_the_wait_of_its_invocation(
    world: PlacingWorld,
) -> None:
    world.placing.is_slow = True

    await world.hang_up("POST", "/v1/invoke", {"task": "increment"})

    assert world.sessions.ended == ["invoke"]


async def test_the_wait_of_an_invocation_ends_when_the_server_stops(world: PlacingWorld) -> None:
    world.placing.is_slow = True
    waiting = asyncio.create_task(invoke(world))
    await world.sessions.waiting.wait()
    world.app.drain()

    reply = await waiting

    assert (reply.status, reply.code) == (503, "outcome-unknown")


async def test_commands_are_refused_if_no_worker_runs_them() -> None:
    async with PlacingWorld(WebSettings()) as world:
        reply = await invoke(world, task="shell", payload={"command": "true"})

    assert reply.code == "shell-disabled"


# Reservations.


async def test_slots_are_reserved_and_used_once(world: PlacingWorld) -> None:
    nonce = [("schedo-lease-nonce", "n1")]
    reserved = await world.post(
        "/v1/reservations",
        {"task": "increment", "requires": {"labels": {"a": 1}}, "count": 2, "ttl": "20s"},
    )

    done = await world.post("/v1/reservations/r1:commit", {"task": "increment"}, nonce)
    again = await world.post("/v1/reservations/r1:commit", {"task": "increment"}, nonce)

    assert reserved.status == 201
    assert reserved.json() == {
        "id": "r1",
        "nonce": "n1",
        "workers": ["w1", "w2"],
        "expires_at": "2026-11-20T11:04:15.000000Z",
    }
    route = Requirements((Condition("a", "=", ("1",)),))
    assert world.placing.calls[0] == Invoked(None, 2, 20.0, route, "increment")
    assert (done.status, done.json()["result"]) == (200, {"Num": 2})
    assert (again.status, again.code) == (409, "no-reservation")


async def test_reserved_slots_are_released(world: PlacingWorld) -> None:
    path = "/v1/reservations/r1:release"

    wrong = await world.post(path, headers=[("schedo-lease-nonce", "n2")])
    right = await world.post(path, headers=[("schedo-lease-nonce", "n1")])
    again = await world.post(path, headers=[("schedo-lease-nonce", "n1")])

    assert (wrong.status, wrong.code) == (409, "no-reservation")
    assert (right.status, right.body) == (204, b"")
    assert again.code == "no-reservation"


@pytest.mark.parametrize("verb", ["commit", "release"])
async def test_a_reservation_is_not_found_without_its_nonce(world: PlacingWorld, verb: str) -> None:
    reply = await world.post(
        f"/v1/reservations/r1:{verb}", {"task": "a"} if verb == "commit" else {}
    )

    assert (reply.status, reply.code) == (400, "bad-request")
    assert world.placing.reserved == {"r1": "n1"}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"ttl": "301s"}, "/ttl"),
        ({"ttl": 0}, "/ttl"),
        ({"count": 0}, "/count"),
        ({"task": "a b"}, "/task"),
        ({"queue": "/"}, "/queue"),
        ({"payload": 1}, "/payload"),
    ],
    ids=str,
)
async def test_a_bad_reservation_is_refused(
    world: PlacingWorld, fields: dict[str, Any], pointer: str
) -> None:
    reply = await world.post("/v1/reservations", fields)

    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, pointer)
    assert world.placing.calls == []


# The short form.


async def short(world: PlacingWorld, **fields: Any) -> Reply:
    return await world.post("/schedule", {"Task": "increment", **fields})


async def test_the_short_form_returns_only_the_result(world: PlacingWorld) -> None:
    reply = await short(world, Requirements={"Region": "eu"}, Payload={"Num": 1})

    assert (reply.status, reply.body) == (200, b'{"Num":2}')
    assert reply.headers["content-type"] == "application/json"
    (call,) = world.placing.calls
    assert call.spec is not None
    assert (call.spec.task, call.spec.payload, call.spec.queue) == (
        "increment",
        b'{"Num":1}',
        "default",
    )


async def test_the_short_form_returns_null_for_a_task_without_a_result(world: PlacingWorld) -> None:
    world.placing.jobs = [make_job(result=None)]

    assert (await short(world)).body == b"null"


async def test_requirements_match_labels_whatever_their_case(world: PlacingWorld) -> None:
    world.sessions.add_worker("w1", labels={"REGION": "us"})
    world.sessions.add_worker("w2", labels={"region": "eu", "Zone": "a"})

    await short(world, Requirements={"Region": "eu", "zone": ["a", "b"]})

    spec = world.placing.calls[0].spec
    assert spec is not None
    assert spec.options.requirements == Requirements(
        (Condition("Zone", "in", ("a", "b")), Condition("region", "=", ("eu",)))
    )


async def test_the_spelling_of_a_worker_with_free_slots_is_preferred(
    world: PlacingWorld,
) -> None:
    world.sessions.add_worker("busy", labels={"Region": "eu"}, slots=1, running=1)
    world.sessions.add_worker("shut", labels={"ReGion": "eu"}, state="cordoned")
    world.sessions.add_worker("free", labels={"REGION": "eu"})

    await short(world, Requirements={"region": "eu"})
    del world.sessions.seen["free"]
    await short(world, Requirements={"region": "eu"})

    routes = [call.spec.options.requirements for call in world.placing.calls if call.spec]
    assert [route and route.labels[0].label for route in routes] == ["REGION", "Region"]


async def test_requirements_without_a_match_stay_as_they_are(
    world: PlacingWorld,
) -> None:
    world.sessions.add_worker("w1", labels={"REGION": "us"})

    await short(world, Requirements={"Region": "eu"})

    spec = world.placing.calls[0].spec
    assert spec is not None
    assert spec.options.requirements == Requirements((Condition("Region", "=", ("eu",)),))


async def test_the_short_form_returns_the_error_of_a_failed_task(world: PlacingWorld) -> None:
    world.placing.jobs = [make_job(State.FAILED)]
    failed = await short(world)
    world.placing.jobs = [make_job(State.RUNNING)]
    late = await short(world)
    world.placing.error = NoCapacity("all are busy", 2, {"no_slots": 2})
    busy = await short(world)

    assert (failed.status, failed.code) == (502, "invocation-failed")
    assert (late.status, late.code) == (504, "invocation-timeout")
    assert late.headers["location"] == "/v1/jobs/0000000000007"
    assert (busy.status, busy.code) == (503, "no-capacity")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/command"),
        ({"Payload": 1}, "/command"),
        ({"command": "true", "Task": "a"}, "/Task"),
        ({"command": "true", "Payload": 1}, "/Payload"),
        ({"command": "true", "Requirements": {}}, "/Requirements"),
        ({"Task": "a", "delay_seconds": 5}, "/delay_seconds"),
        ({"Task": "a b"}, "/Task"),
        ({"Task": ""}, "/Task"),
        ({"Task": "a", "Requirements": {"Region": []}}, "/Requirements/Region"),
        ({"Task": "a", "Requirements": []}, "/Requirements"),
        ({"Task": "a", "payload": 1}, "/payload"),
        ({"Task": "a", "Payload": "x" * 1_048_560}, "/Payload"),
    ],
    ids=lambda value: ascii(value)[:50],
)
async def test_a_bad_short_form_is_refused(
    world: PlacingWorld, body: dict[str, Any], pointer: str
) -> None:
    reply = await world.post("/schedule", body)

    if len(str(body)) < 1_000:
        assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, pointer)
    else:
        assert reply.status == 413
    assert world.placing.calls == []
