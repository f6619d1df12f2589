"""A job gets another owner while the poll of its worker waits at a gateway.

The next owner of a dead server's jobs starts those again that it believes to wait, so it hears at
once which of them run. In these tests it has never heard of the job, and so denies the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo.cluster import worker_call
from schedo.cluster.worker_call import WorkerCall
from schedo.core.adoption import HOLD_BACK_US
from schedo.core.limits import SECOND
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.errors import StoreError
from schedo.web.http import Response
from tests.cluster.members import Map, MemberWorld, running_cluster
from tests.cluster.workers import HandWorker, Message, lease_of
from tests.passes import one_pass

SHARD_OF_FIRST = 0
COMES_WITHIN_S = 5.0
Three = tuple[Map, MemberWorld, MemberWorld, MemberWorld]


@pytest.fixture
async def three(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Three]:
    # The clock of an engine stands, so a wait in it has no end: nothing is heard by chance.
    monkeypatch.setattr(worker_call, "SOON_S", 0.0)
    async with running_cluster(3) as (everything, (first, second, third)):
        yield everything, first, second, third


async def begin_to_run(worker: HandWorker, first: MemberWorld, gateway: MemberWorld) -> str:
    """Let the worker, which polls the gateway, run a job of the first server."""
    polling = worker.begin_poll(gateway)
    await first.submit(task="demo")
    return lease_of(await polling)


async def wait_at(gateway: MemberWorld, worker: HandWorker, lease: str) -> asyncio.Task[Message]:
    """Return a poll that waits at the gateway, and whose lease the owner has heard of."""
    polling = worker.begin_poll(gateway, lease)
    while not any(call.has_waited for call in gateway.router._gateway._workers.list_polls()):
        await one_pass()
    await gateway.engine.flush()
    return polling


async def test_the_next_owner_hears_at_once_of_an_attempt_whose_worker_polls_another_server(
    three: Three,
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await begin_to_run(worker, first, third)
    polling = await wait_at(third, worker, lease)

    everything.give([SHARD_OF_FIRST], 2)

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["revoked"] == [lease]


async def test_a_gateway_that_gets_the_job_of_its_worker_finds_that_at_once(three: Three) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await begin_to_run(worker, first, third)
    polling = await wait_at(third, worker, lease)

    everything.give([SHARD_OF_FIRST], 3)

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["revoked"] == [lease]


async def test_the_next_owner_hears_soon_of_an_attempt_if_it_is_not_ready_at_first(
    three: Three,
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await begin_to_run(worker, first, third)
    polling = await wait_at(third, worker, lease)
    third.cluster.believed[SHARD_OF_FIRST] = 2
    everything.give([SHARD_OF_FIRST], None)  # so the second one refuses the part
    (call,) = third.router._gateway._workers.list_polls()
    while call.look_s == worker_call.LOOK_S:
        await one_pass()

    everything.owners[SHARD_OF_FIRST] = 2  # without a notification

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["revoked"] == [lease]


async def test_a_poll_goes_on_while_the_database_does_not_say_where_a_job_is(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await begin_to_run(worker, first, third)
    polling = await wait_at(third, worker, lease)
    asked = 0

    async def fail(job_ids: object) -> dict[int, int]:
        nonlocal asked
        asked += 1
        raise StoreError("the database does not respond")

    third.cluster.believed[SHARD_OF_FIRST] = 2
    with monkeypatch.context() as failing:
        failing.setattr(third.cluster, "shards_of_jobs", fail)
        everything.give([SHARD_OF_FIRST], None)
        while asked < 2:
            await one_pass()
    assert not polling.done()
    everything.owners[SHARD_OF_FIRST] = 2

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["revoked"] == [lease]


async def test_each_change_of_owners_begins_the_looks_for_an_owner_anew(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await begin_to_run(worker, first, third)
    polling = await wait_at(third, worker, lease)
    monkeypatch.setattr(worker_call, "SOON_S", 0.001)
    waits: list[float] = []
    ask = third.router._gateway._ask_here

    async def note_wait(call: WorkerCall, wait_s: float | None) -> tuple[Response, bool]:
        waits.append(call.look_s)
        return await ask(call, wait_s)

    monkeypatch.setattr(third.router._gateway, "_ask_here", note_wait)
    for _ in range(3):
        waits.clear()
        everything.give([SHARD_OF_FIRST], None)
        async with asyncio.timeout(COMES_WITHIN_S):
            while waits[-1:] != [0.001]:
                await one_pass()

    polling.cancel()


async def test_the_next_owner_hears_at_once_also_if_the_poll_is_still_being_read(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await begin_to_run(worker, first, third)
    sessions = third.engine.sessions
    work = sessions.work

    async def work_late(request: PollRequest, claim: Any = None) -> PollResponse:
        """Carry a poll that waits out when the job has got another owner: it has many tasks."""
        if request.wait_s:
            monkeypatch.setattr(sessions, "work", work)
            everything.give([SHARD_OF_FIRST], 2)
        return await work(request, claim)

    monkeypatch.setattr(sessions, "work", work_late)

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await worker.begin_poll(third, lease))["revoked"] == [lease]


async def test_an_owner_that_is_ready_within_300_ms_hears_before_it_gives_the_job_away(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_call, "SOON_S", 0.02)
    _, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await begin_to_run(worker, first, third)
    polling = await wait_at(third, worker, lease)
    (call,) = third.router._gateway._workers.list_polls()
    looks: list[float] = []

    while sum(looks) < 0.3:
        call.note_unheard([lease])
        looks.append(call.look_s)

    assert max(looks) < HOLD_BACK_US / SECOND
    polling.cancel()
