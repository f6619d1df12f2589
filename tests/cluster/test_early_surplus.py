"""A surplus that is found while the poll of a worker is still being read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster.parts_of_gateways import EMPTY_S
from schedo.core.limits import SMALL_BODY_BYTES_MAX
from schedo.engine.sharing import jobs_in_steps
from schedo.web.handlers import work
from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker, lease_of
from tests.passes import one_pass

COMES_WITHIN_S = 1.0


def make_worker() -> HandWorker:
    """Return a worker whose requests are large enough to be read in steps."""
    return HandWorker(tasks=["demo", *(f"task-{n:04}" for n in range(SMALL_BODY_BYTES_MAX // 9))])


async def test_a_job_that_is_found_before_the_poll_is_open_comes_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = make_worker()
    await worker.poll(second)
    workers = second.router._gateway._workers

    async def read_late(steps: Any) -> Any:
        """Return the request when the other server has told of the job."""
        found = await jobs_in_steps(steps)
        monkeypatch.undo()
        await first.submit(task="demo")
        while not any(call.worker.relayed for call in workers.list_polls()):
            await one_pass()
        return found

    monkeypatch.setattr(work, "jobs_in_steps", read_late)

    async with asyncio.timeout(COMES_WITHIN_S):
        assert lease_of(await worker.begin_poll(second))


async def test_a_server_that_has_no_job_any_more_says_so_although_it_reads_the_question_late(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = make_worker()
    polling = worker.begin_poll(second)
    while not second.router._gateway._workers.list_polls():
        await one_pass()
    await second.engine.flush()
    loop = asyncio.get_running_loop()
    submitted, is_read = loop.create_future(), loop.create_future()

    async def read_late(steps: Any) -> Any:
        """Return the question of the other server when the job is gone, and the first look past."""
        monkeypatch.setattr(work, "jobs_in_steps", jobs_in_steps)
        await first.post(f"/v1/jobs/{(await submitted)['id']}:cancel")
        await asyncio.wait((loop.create_future(),), timeout=2 * EMPTY_S)
        is_read.set_result(None)
        return await jobs_in_steps(steps)

    monkeypatch.setattr(work, "jobs_in_steps", read_late)
    submitted.set_result(await first.submit(task="demo"))
    await is_read

    async with asyncio.timeout(COMES_WITHIN_S):
        await second.submit(task="demo")
        assert lease_of(await polling)
