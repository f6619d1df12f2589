"""POST /v1/jobs/{id}:retry: now, or at an instant."""

from __future__ import annotations

from tests.web.world import World


async def test_an_ended_job_can_wait_for_its_instant_again(world: World) -> None:
    job = await world.submit(delay=60)
    url = f"/v1/jobs/{job['id']}"
    await world.post(f"{url}:cancel")

    wrong = await world.post(f"{url}:retry", {"run_at": "tomorrow"})
    assert wrong.status == 422
    assert wrong.json()["errors"][0]["pointer"] == "/run_at"
    waiting = (await world.post(f"{url}:retry", {"run_at": job["scheduled_at"]})).json()

    assert (waiting["state"], waiting["scheduled_at"]) == ("scheduled", job["scheduled_at"])
    await world.post(f"{url}:cancel")
    past = (await world.post(f"{url}:retry", {"run_at": "2020-01-01T00:00:00Z"})).json()
    assert (past["state"], past["scheduled_at"]) == ("queued", job["created_at"])
