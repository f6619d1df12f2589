"""GET /v1/jobs/{id}/history."""

from __future__ import annotations

from msgspec.structs import replace

from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.changes import Changes
from schedo.core.ids import parse_id, render_id
from schedo.core.leases import AttemptResult, Completed, Failed
from schedo.core.model import Failure
from schedo.core.states import State
from schedo.protocol.times import render_instant
from tests.store.contract_bulk import PLAIN
from tests.web.world import SECOND, T0, World


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


async def test_the_history_tells_when_the_worker_began_and_how_long_it_ran(world: World) -> None:
    world.attach_worker()
    job = await world.submit(retry={"max_attempts": 2, "backoff": "fixed", "initial": "1ms"})
    await end_after(world, SECOND, Failed(Failure("Error", "it broke")), 400_000)
    await world.clock.run_until(world.engine, world.clock.now() + 1_000)
    picked = world.clock.now()
    await end_after(world, SECOND, Completed(), 250_000)

    history = (await world.get(f"/v1/jobs/{job['id']}/history")).json()["items"]
    record = (await world.get(f"/v1/jobs/{job['id']}")).json()
    [failed] = (await world.get(f"/v1/jobs/{job['id']}/attempts")).json()["items"]

    steps = [item["what"] for item in history if item["what"] in ("picked", "started", "ended")]
    assert steps == ["picked", "started", "ended"] * 2
    assert [item["ran"] for item in history if "ran" in item] == ["400ms", "250ms"]
    assert record["picked_at"] == render_instant(picked)
    assert record["started_at"] == render_instant(picked + 750_000)
    assert record["completed_at"] == render_instant(picked + SECOND)
    assert failed["started_at"] > failed["picked_at"]


async def test_an_attempt_did_not_begin_before_the_server_gave_it_out(world: World) -> None:
    world.attach_worker()
    job = await world.submit()
    await end_after(world, SECOND, Completed(), 90 * SECOND)

    history = (await world.get(f"/v1/jobs/{job['id']}/history")).json()["items"]
    record = (await world.get(f"/v1/jobs/{job['id']}")).json()

    assert record["started_at"] == record["picked_at"]
    assert not [item for item in history if item["what"] == "picked" or "ran" in item]


async def test_the_history_names_an_operation_that_only_the_store_knows(world: World) -> None:
    """As in a cluster, where another server carries it out."""
    job = await world.submit(delay="1h")
    number = parse_id(job["id"])
    operation = replace(PLAIN, id=number + 256, requested_by="ops")
    before = JobBefore(number, T0 + SECOND, State.QUEUED, 0, 5)
    steps = [BulkStep(operation.id, number + 1, (before,))]
    await world.engine.store.commit(Changes(bulk_operations={operation.id: operation}, steps=steps))

    [*_, changed, _] = (await world.get(f"/v1/jobs/{job['id']}/history")).json()["items"]

    assert changed == {
        "at": render_instant(T0 + SECOND),
        "what": "changed",
        "action": f"{operation.action}_job",
        "by": "ops",
        "operation": render_id(operation.id),
    }


async def end_after(world: World, delay_us: int, outcome: Completed | Failed, ran_us: int) -> None:
    """End the newest attempt, as a worker does that has run it for `ran_us`."""
    await world.engine.flush()
    world.clock.stall(delay_us)
    key = world.worker.leases[-1].key
    world.engine.report(AttemptResult(key, outcome, (), ran_us))
    await world.engine.flush()
