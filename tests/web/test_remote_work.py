"""Workers over HTTP against the real engine, from the poll to the result."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.core.limits import PAYLOAD_BYTES_MAX
from tests.web.world import T0, World


async def work(world: World, worker: str = "w1", **fields: Any) -> Any:
    asked = {"worker": worker, "session": "s", "offers": True, **fields}
    reply = await world.post("/v1/work", asked)
    assert reply.status == 200, reply
    return reply.json()


async def get_job(world: World, job_id: str) -> Any:
    return (await world.get(f"/v1/jobs/{job_id}")).json()


async def test_a_lease_is_in_the_response_and_its_result_in_the_next_request(world: World) -> None:
    job = await world.submit(task="increment", payload={"Num": 1})

    given = await work(world, running=[], wait="5s")
    (lease,) = given["leases"]
    ended = await work(
        world,
        max_leases=0,
        results=[{"lease": lease["lease"], "outcome": "completed", "result": {"Num": 2}}],
    )

    assert (lease["job"], lease["attempt"], lease["payload"]) == (job["id"], 1, {"Num": 1})
    assert ended["refused"] == []
    found = await get_job(world, job["id"])
    assert (found["state"], found["result"], found["worker"]) == ("completed", {"Num": 2}, "w1")


async def test_large_payloads_come_with_several_responses(world: World) -> None:
    await work(world, slots=6, max_leases=0)
    for _ in range(6):
        await world.submit(payload="x" * 100_000)

    counts = []
    for _ in range(2):
        leases = (await work(world, slots=6, wait="5s"))["leases"]
        counts.append([len(lease["payload"]) for lease in leases])

    assert counts == [[100_000] * 4, [100_000] * 2]
    assert world.app.context.in_flight.total < PAYLOAD_BYTES_MAX, "their claims are released"


async def test_a_waiting_poll_gets_its_response_as_soon_as_there_is_a_job(world: World) -> None:
    waiting = asyncio.create_task(work(world, wait="30s"))
    while not world.app.context.polls:
        await world.engine.flush()
    job = await world.submit()

    async with asyncio.timeout(5):
        given = await waiting

    assert [lease["job"] for lease in given["leases"]] == [job["id"]]


async def test_a_result_sent_twice_changes_nothing(world: World) -> None:
    job = await world.submit()
    (lease,) = (await work(world))["leases"]
    result = {"lease": lease["lease"], "outcome": "completed", "result": 1}

    await work(world, max_leases=0, results=[result])
    again = await work(world, max_leases=0, results=[result])
    other = await work(world, max_leases=0, results=[{**result, "result": 2}])

    assert again["refused"] == []
    assert [(each["lease"], each["code"]) for each in other["refused"]] == [
        (lease["lease"], "stale-lease")
    ]
    assert (await get_job(world, job["id"]))["result"] == 1


async def test_a_result_for_the_attempt_of_another_worker_is_refused(world: World) -> None:
    job = await world.submit()
    (lease,) = (await work(world))["leases"]
    forged = {"lease": lease["lease"], "outcome": "completed", "result": "forged"}

    answer = await work(world, "thief", max_leases=0, results=[forged])

    assert [each["lease"] for each in answer["refused"]] == [lease["lease"]]
    assert answer["refused"][0]["status"] == 409
    assert (await get_job(world, job["id"]))["state"] == "running"


async def test_a_result_for_an_unknown_job_is_refused(world: World) -> None:
    lease = "0000000000007.1.1"

    answer = await work(world, max_leases=0, results=[{"lease": lease, "outcome": "stopped"}])

    assert [each["lease"] for each in answer["refused"]] == [lease]


async def test_an_unknown_lease_is_revoked(world: World) -> None:
    answer = await work(world, running=["0000000000007.1.1"], max_leases=0)

    assert answer["revoked"] == ["0000000000007.1.1"]


async def test_a_stop_is_repeated_until_the_attempt_ends(world: World) -> None:
    job = await world.submit()
    (lease,) = (await work(world))["leases"]
    running = [lease["lease"]]
    await world.post(f"/v1/jobs/{job['id']}:cancel")

    first = await work(world, running=running, max_leases=0)
    second = await work(world, running=running, max_leases=0)
    third = await work(
        world, running=[], max_leases=0, results=[{"lease": lease["lease"], "outcome": "stopped"}]
    )

    stop = {"lease": lease["lease"], "reason": "cancel"}
    assert (first["stop"], second["stop"], third["stop"]) == ([stop], [stop], [])
    assert (await get_job(world, job["id"]))["state"] == "cancelled"


async def test_progress_can_be_read_while_the_job_runs(world: World) -> None:
    job = await world.submit()
    (lease,) = (await work(world))["leases"]

    await work(
        world, max_leases=0, progress=[{"lease": lease["lease"], "percent": 40, "log": "line"}]
    )
    await work(world, "thief", max_leases=0, progress=[{"lease": lease["lease"], "log": "forged"}])

    (item,) = (await world.get(f"/v1/jobs/{job['id']}/progress")).json()["items"]
    assert (item["attempt"], item["percent"], item["log"]) == (1, 40.0, "line")


async def test_a_job_runs_only_on_suitable_workers(world: World) -> None:
    job = await world.submit(
        requires={"labels": {"region": "eu"}, "resources": {"cpu": 3}},
        prefer=[{"zone": "a"}],
    )

    elsewhere = await work(world, "us", labels={"region": "us"}, resources={"cpu": 4})
    small = await work(world, "small", labels={"region": "eu"}, resources={"cpu": 2})
    right = await work(world, "right", labels={"region": "eu"}, resources={"cpu": 4}, slots=2)

    assert (elsewhere["leases"], small["leases"]) == ([], [])
    assert [lease["job"] for lease in right["leases"]] == [job["id"]]
    seen = (await world.get("/v1/workers/right")).json()
    assert (seen["resources_used"], seen["running"], seen["free"]) == ({"cpu": 3}, 1, 1)


async def test_the_explanation_of_a_waiting_job_names_the_label_that_no_worker_has(
    world: World,
) -> None:
    await work(world)
    job = await world.submit(requires={"labels": {"gpu": "a100"}})

    why = (await world.get(f"/v1/jobs/{job['id']}/why")).json()["why"]

    assert "gpu" in why


async def test_a_cordoned_worker_gets_nothing_until_it_is_uncordoned(world: World) -> None:
    await work(world)
    cordoned = await world.post("/v1/workers/w1:cordon")
    await world.submit()

    nothing = await work(world)
    await world.post("/v1/workers/w1:uncordon")
    something = await work(world)

    assert cordoned.json()["state"] == "cordoned"
    assert (len(nothing["leases"]), len(something["leases"])) == (0, 1)


async def test_the_response_to_a_drained_worker_requests_a_drain(world: World) -> None:
    await work(world)

    await world.post("/v1/workers/w1:drain")

    assert (await work(world))["drain"] is True


# Right now.


async def poll_until_offer(world: World, worker: str = "w1") -> Any:
    given = await work(world, worker, wait="5s", running=[])
    (lease,) = given["leases"]
    assert lease["offer"] is True
    return lease


async def waiting_for_work(world: World, count: int = 1) -> None:
    while len(world.app.context.polls) < count:
        await world.engine.flush()


async def test_an_invocation_returns_the_result_of_the_worker(world: World) -> None:
    offer = asyncio.create_task(poll_until_offer(world))
    await waiting_for_work(world)
    invoked = asyncio.create_task(
        world.post("/schedule", {"Task": "increment", "Payload": {"Num": 1}})
    )

    async with asyncio.timeout(5):
        lease = await offer
        result = {"lease": lease["lease"], "outcome": "completed", "result": {"Num": 2}}
        await work(world, max_leases=0, accept=[lease["lease"]], results=[result])
        reply = await invoked

    assert (lease["trigger"], lease["payload"]) == ("invoke", {"Num": 1})
    assert (reply.status, reply.body) == (200, b'{"Num":2}')
    (job,) = (await world.get("/v1/jobs")).json()["items"]
    assert (job["state"], job["trigger"]) == ("completed", "invoke")


async def test_a_worker_cannot_accept_the_offer_of_another(world: World) -> None:
    offer = asyncio.create_task(poll_until_offer(world))
    await waiting_for_work(world)
    invoked = asyncio.create_task(world.post("/v1/invoke", {"task": "increment", "wait": 0}))

    async with asyncio.timeout(5):
        lease = await offer
        await work(world, "thief", max_leases=0, accept=[lease["lease"]])
        await work(world, max_leases=0, reject=[{"lease": lease["lease"], "reason": "no"}])
        await world.clock.run_until(world.engine, T0 + 1_000_000)  # the thief does not answer
        reply = await invoked

    assert (reply.status, reply.code) == (503, "no-capacity")


async def test_an_invocation_without_a_worker_fails_at_once_with_no_capacity(world: World) -> None:
    async with asyncio.timeout(5):
        reply = await world.post("/v1/invoke", {"task": "increment"})

    assert (reply.status, reply.code) == (503, "no-capacity")
    assert reply.json()["considered"] == 0
    assert (await world.get("/v1/jobs")).json()["items"] == []


async def test_an_invocation_that_no_worker_could_run_is_unsatisfiable(world: World) -> None:
    await work(world, labels={"region": "us"})

    reply = await world.post(
        "/v1/invoke", {"task": "increment", "requires": {"labels": {"region": "eu"}}}
    )

    assert (reply.status, reply.code) == (422, "unsatisfiable")


async def test_the_error_of_the_worker_is_in_the_response(world: World) -> None:
    offer = asyncio.create_task(poll_until_offer(world))
    await waiting_for_work(world)
    invoked = asyncio.create_task(world.post("/v1/invoke", {"task": "increment"}))

    async with asyncio.timeout(5):
        lease = await offer
        error = {"type": "ValueError", "message": "no number"}
        result = {"lease": lease["lease"], "outcome": "failed", "error": error}
        await work(world, max_leases=0, accept=[lease["lease"]], results=[result])
        reply = await invoked

    assert (reply.status, reply.code) == (502, "invocation-failed")
    assert reply.json()["job"]["error"] == error


async def test_a_reservation_is_used_once_and_only_with_its_nonce(world: World) -> None:
    world.attach_worker()
    kept = (await world.post("/v1/reservations", {"count": 2})).json()
    path = f"/v1/reservations/{kept['id']}:commit"
    body = {"task": "demo", "wait": 0}

    wrong = await world.post(path, body, [("schedo-lease-nonce", "x")])
    right = await world.post(path, body, [("schedo-lease-nonce", kept["nonce"])])
    again = await world.post(path, body, [("schedo-lease-nonce", kept["nonce"])])

    assert kept["workers"] == ["hands", "hands"]
    assert (wrong.code, again.code) == ("no-reservation", "no-reservation")
    assert right.status == 201
    assert len(right.json()["items"]) == 2
