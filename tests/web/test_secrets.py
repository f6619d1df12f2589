"""No response shows the secrets of webhooks."""

from __future__ import annotations

import orjson

from tests.web.world import World

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNED = {"task": "http", "payload": {"url": "https://example.org", "secret": SECRET}}


async def test_the_secret_of_a_webhook_is_stored_and_never_shown(world: World) -> None:
    key = [("idempotency-key", "k")]
    first = await world.post("/v1/jobs", SIGNED, key)
    job_id = first.json()["id"]
    responses = [
        first,
        await world.post("/v1/jobs", SIGNED, key),
        await world.post("/v1/jobs?wait=0", SIGNED),
        await world.post("/v1/jobs:batch", [SIGNED, {**SIGNED, "delay": "30d"}]),
        await world.get(f"/v1/jobs/{job_id}"),
        await world.get(f"/v1/jobs/{job_id}/wait?timeout=0"),
        await world.get("/v1/jobs"),
        await world.get(f"/status?task_id={job_id}"),
        await world.patch(f"/v1/jobs/{job_id}", {"priority": 1}),
        await world.put("/v1/schedules/hook", {**SIGNED, "every": "1h"}),
        await world.get("/v1/schedules/hook"),
        await world.get("/v1/schedules"),
        await world.post("/v1/schedules/hook:trigger"),
        await world.post(f"/v1/jobs/{job_id}:cancel"),
    ]

    assert [answer.status for answer in responses if answer.status >= 300] == []
    assert [answer.body for answer in responses if SECRET.encode() in answer.body] == []
    assert first.json()["payload"] == {"url": "https://example.org", "secret": "***"}
    world.attach_worker()
    assert orjson.loads((await world.worker.first()).payload or b"")["secret"] == SECRET


async def test_the_mask_in_a_put_of_a_schedule_stands_for_the_stored_secret(world: World) -> None:
    expect = {"within": "5m", "on_miss": SIGNED}
    asked = {**SIGNED, "every": "1h", "on_failure": SIGNED, "expect": expect}
    await world.put("/v1/schedules/hook", asked)
    shown = (await world.get("/v1/schedules/hook")).json()
    masked = {name: shown[name] for name in asked}

    same = await world.put("/v1/schedules/hook", masked)
    other = await world.put("/v1/schedules/hook", {**masked, "every": "2h"})

    assert (same.json()["effect"], other.json()["effect"]) == ("unchanged", "changed")
    spec = (await world.engine.get_schedule("hook")).spec
    assert spec.job.options.on_failure is not None
    assert spec.expect is not None
    assert spec.expect.on_miss is not None
    for job in (spec.job, spec.job.options.on_failure, spec.expect.on_miss):
        assert orjson.loads(job.payload)["secret"] == SECRET


async def test_the_mask_in_a_put_of_an_expectation_stands_for_the_stored_secret(
    world: World,
) -> None:
    await world.put("/v1/expectations/nas", {"every": "1d", "within": "1h", "on_back": SIGNED})
    shown = (await world.get("/v1/expectations/nas")).json()["on_back"]

    reply = await world.put(
        "/v1/expectations/nas", {"every": "1d", "within": "2h", "on_back": shown}
    )

    assert reply.json()["effect"] == "changed"
    (kept,) = world.engine.expectations.named()
    assert kept.expect.on_back is not None
    assert orjson.loads(kept.expect.on_back.payload)["secret"] == SECRET
