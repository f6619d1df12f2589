"""Jobs that are deleted at their end: their results stay in the memory of a server for a while."""

from __future__ import annotations

import pytest

from schedo.core.ids import parse_id
from schedo.core.leases import AttemptResult, Completed
from schedo.errors import NotFound
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_app_calls import backend_of

LONG_S = 30.0
UNKNOWN = "0CRAAAE7DYK81"  # which no server has


async def end_job(world: MemberWorld) -> str:
    """Let the server run a job that is not kept; return its id."""
    world.attach_worker()
    job = await world.submit(keep={"completed": "0s"})
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Completed(b"7")))
    await world.engine.flush()
    assert await world.engine.store.get_job(parse_id(job["id"])) is None
    return str(job["id"])


@pytest.mark.parametrize("path", ["", "/attempts", "/output", "/history", "/wait?timeout=30s"])
async def test_a_job_that_has_just_ended_and_is_not_kept_is_found_by_each_server(path: str) -> None:
    async with running_cluster(3) as (_, worlds):
        ident = await end_job(worlds[1])

        replies = [await world.get(f"/v1/jobs/{ident}{path}") for world in worlds]
        missing = await worlds[0].get(f"/v1/jobs/{UNKNOWN}{path}")

    assert [reply.status for reply in replies] == [200] * 3
    assert (missing.status, missing.code) == (404, "not-found")


async def test_a_task_gets_the_result_of_a_job_of_another_server_that_is_not_kept(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    ident = await end_job(first)

    assert (await backend_of(second).wait(ident, LONG_S))["result"] == 7
    with pytest.raises(NotFound):
        await backend_of(second).wait(UNKNOWN, LONG_S)


async def test_a_task_does_not_find_a_job_whose_server_cannot_be_reached(cluster: Cluster) -> None:
    _, first, second = cluster
    ident = await end_job(first)
    await first.http.stop(grace_s=0.1)

    with pytest.raises(NotFound):
        await backend_of(second).wait(ident, LONG_S)
