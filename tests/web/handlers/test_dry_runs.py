"""POST /v1/invoke with dry_run: nothing starts."""

from __future__ import annotations

from tests.web.world import World


async def test_a_dry_run_starts_nothing_and_says_who_could(world: World) -> None:
    world.attach_worker(slots=2)
    await world.engine.flush()

    reply = await world.post("/v1/invoke", {"task": "demo", "count": 2, "dry_run": True})

    assert reply.status == 200
    assert reply.json() == {
        "would_start": True,
        "text": "1 of 1 workers could take it now",
        "able": 1,
        "considered": 1,
        "workers": [
            {
                "worker": "hands",
                "ok": True,
                "permanent": False,
                "text": "it could take the job now",
            }
        ],
        "has_more_workers": False,
    }
    assert (await world.get("/v1/jobs")).json()["items"] == []


async def test_a_dry_run_names_the_error_of_the_invocation(world: World) -> None:
    reply = await world.post("/v1/invoke", {"task": "demo", "dry_run": True})
    wrong = await world.post("/v1/invoke", {"task": "demo", "dry_run": "yes"})

    found = reply.json()
    assert (found["would_start"], found["refusal"]) == (False, "no-capacity")
    assert found["text"] == "no worker is connected"
    assert wrong.json()["errors"][0]["pointer"] == "/dry_run"


async def test_the_information_has_the_time_the_caller_and_the_objective(world: World) -> None:
    info = (await world.get("/v1/info")).json()

    assert info["now"] == "2026-11-20T11:04:05.000000Z"
    assert info["objective"] == {"lateness_us": 10_000, "target": 0.999}
    assert info["caller"] == {"name": "anyone", "role": "admin"}
    assert info["features"]["test_clock"] is True
