"""GET /v1/failures."""

from __future__ import annotations

from schedo.core.leases import AttemptResult, Failed
from schedo.core.model import Failure
from tests.web.world import World


async def test_failed_attempts_are_listed_in_groups(world: World) -> None:
    world.attach_worker()
    assert (await world.get("/v1/failures")).json()["items"] == []
    job = await world.submit()
    lease = await world.worker.first()
    outcome = Failed(Failure("exit-code", "ended with exit code 2", exit_code=2), retryable=False)
    world.engine.report(AttemptResult(lease.key, outcome))
    await world.engine.flush()

    found = (await world.get("/v1/failures")).json()

    [group] = found["items"]
    assert group.pop("first_at") == group.pop("last_at")
    assert group == {
        "task": "demo",
        "type": "exit-code",
        "exit_code": 2,
        "message": "ended with exit code #",
        "count": 1,
        "beyond": 0,
        "failed_jobs": 1,
        "last_job": job["id"],
        "last_message": "ended with exit code 2",
        "recent": [0] * 29 + [1],
    }
