"""Parts of operations on many jobs that are sent again, because a response was lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.core.bulk import BulkAction, BulkOperation
from schedo.core.bulk_commands import BeginBulk
from schedo.core.ids import parse_id
from schedo.core.job_filter import JobFilter
from schedo.core.leases import AttemptResult, Failed
from schedo.core.model import Failure
from schedo.core.states import State
from schedo.errors import SchedoError
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.test_bulk import read_store_of
from tests.passes import one_pass

FAILED = Failed(Failure("boom", "it broke"))


async def ended(world: MemberWorld, number: int) -> BulkOperation:
    """Return the operation once it has ended."""
    async with asyncio.timeout(20):
        while True:
            for each in await world.engine.bulk.all():
                if each.id == number and not each.is_active:
                    return each
            await one_pass()


async def run_and_fail(world: MemberWorld) -> None:
    """Let the attempt that has begun fail; the job waits for its next one."""
    lease = await world.worker.first()
    world.worker.leases.clear()
    world.engine.report(AttemptResult(lease.key, FAILED))
    await world.engine.flush()


@pytest.mark.parametrize("moving_s", [10.0, 0.0], ids=["in the same step", "in the next step"])
async def test_a_job_that_another_server_has_run_early_is_not_run_again_if_its_response_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, moving_s: float
) -> None:
    monkeypatch.setattr("schedo.cluster.bulk.MOVING_S", moving_s)
    monkeypatch.setattr("schedo.engine.bulk_runner._CLOSED_S", 0.0)
    _, first, second = cluster
    read_store_of(first, second, monkeypatch)
    first.attach_worker()
    second.router.start()
    job = parse_id((await first.submit(delay="1h"))["id"])
    send = second.router.servers.send

    async def lose(*request: Any) -> None:
        monkeypatch.setattr(second.router.servers, "send", send)
        await send(*request)
        await run_and_fail(first)
        raise SchedoError("the response is lost")

    monkeypatch.setattr(second.router.servers, "send", lose)
    begun = await second.engine.bulk.begin(BeginBulk(BulkAction.RUN, JobFilter(task="demo")))
    operation = await ended(second, begun.id)
    await first.engine.flush()

    found = await first.engine.get(job)
    assert (found.state, found.attempt, first.worker.leases) == (State.RETRYING, 1, [])
    assert (operation.total, operation.done, operation.skipped) == (1, 1, 0)
    step = await second.engine.bulk._store.load_bulk_step(begun.id, begun.id + 1)
    assert step is not None  # an undo has the job
    assert [each.id for each in step.jobs] == [job]
