"""GET /v1/jobs/{id}/history."""

from __future__ import annotations

from schedo.core.leases import AttemptResult, Failed
from schedo.core.model import Failure
from tests.web.world import World


async def test_the_history_of_a_retried_job_has_its_first_due_instant(world: World) -> None:
    world.attach_worker()
    job = await world.submit(retry={"max_attempts": 2, "backoff": "fixed", "initial": "10s"})
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Failed(Failure("Error", "it broke"))))
    await world.engine.flush()

    history = (await world.get(f"/v1/jobs/{job['id']}/history")).json()
    record = (await world.get(f"/v1/jobs/{job['id']}")).json()

    assert history["first_due_at"] == job["scheduled_at"] != record["scheduled_at"]
    assert history["durable_at"] >= job["created_at"]
    assert [item["what"] for item in history["items"]] == [
        *("created", "durable", "due", "started", "ended", "due")
    ]
    assert history["items"][-1] == {"at": record["scheduled_at"], "what": "due", "attempt": 2}
    assert (await world.get("/v1/jobs/0000000000001/history")).code == "not-found"
