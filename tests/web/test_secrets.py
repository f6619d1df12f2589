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
