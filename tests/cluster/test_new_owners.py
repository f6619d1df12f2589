"""A job gets another owner while the poll of its worker waits at a gateway.

The next owner of a dead server's jobs starts those again that it believes to wait, so it hears at
once which of them run. In these tests it has never heard of the job, and so denies the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from schedo.cluster import owner_pace
from schedo.cluster.owner_pace import Pace
from schedo.core.adoption import HOLD_BACK_US
from schedo.core.limits import SECOND
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.errors import StoreError
from tests.cluster.members import Map, MemberWorld, running_cluster
from tests.cluster.workers import HandWorker, Message
from tests.passes import one_pass

SHARD_OF_FIRST = 0
COMES_WITHIN_S = 5.0
WATCHED_S = 0.2  # so long nothing must come; what is wrong comes within some milliseconds
Three = tuple[Map, MemberWorld, MemberWorld, MemberWorld]


@pytest.fixture
async def three(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Three]:
    # The clock of an engine stands, so a wait in it has no end: nothing is heard by chance.
    monkeypatch.setattr(owner_pace, "SOON_S", 0.0)
    async with running_cluster(3) as (everything, (first, second, third)):
        yield everything, first, second, third


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
    lease = await worker.take(first, at=third, task="demo")
    polling = await wait_at(third, worker, lease)

    everything.give([SHARD_OF_FIRST], 2)

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["revoked"] == [lease]


async def test_a_gateway_that_gets_the_job_of_its_worker_finds_that_at_once(three: Three) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await worker.take(first, at=third, task="demo")
    polling = await wait_at(third, worker, lease)

    everything.give([SHARD_OF_FIRST], 3)

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["revoked"] == [lease]


async def test_the_next_owner_hears_soon_of_an_attempt_if_it_is_not_ready_at_first(
    three: Three,
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await worker.take(first, at=third, task="demo")
    polling = await wait_at(third, worker, lease)
    third.cluster.believed[SHARD_OF_FIRST] = 2
    everything.give([SHARD_OF_FIRST], None)  # so the second one refuses the part
    (call,) = third.router._gateway._workers.list_polls()
    while not call.worker.paces[2]._is_unheard:
        await one_pass()

    everything.owners[SHARD_OF_FIRST] = 2  # without a notification

    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["revoked"] == [lease]


async def test_a_poll_goes_on_while_the_database_does_not_say_where_a_job_is(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await worker.take(first, at=third, task="demo")
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
    lease = await worker.take(first, at=third, task="demo")
    polling = await wait_at(third, worker, lease)
    for pause in ("SOON_S", "OFTEN_S", "LOOK_S"):
        monkeypatch.setattr(owner_pace, pause, 60.0)  # so each look is because of a change
    reads: list[Sequence[int]] = []
    read = third.cluster.shards_of_jobs

    async def note_read(job_ids: Sequence[int]) -> dict[int, int]:
        reads.append(job_ids)
        return await read(job_ids)

    monkeypatch.setattr(third.cluster, "shards_of_jobs", note_read)
    third.cluster.believed[SHARD_OF_FIRST] = 2  # which refuses
    for looks in (1, 2, 3):
        everything.give([SHARD_OF_FIRST], None)
        async with asyncio.timeout(COMES_WITHIN_S):
            while len(reads) < looks:
                await one_pass()

    polling.cancel()


async def test_the_next_owner_hears_at_once_also_if_the_poll_is_still_being_read(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await worker.take(first, at=third, task="demo")
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


async def test_an_owner_that_is_ready_within_300_ms_hears_before_it_gives_the_job_away() -> None:
    pace = Pace()
    looks: list[float] = []

    while sum(looks) < 0.3:
        pace.note_asked(["a"], is_heard=False)
        looks.append(round(pace.due_s - asyncio.get_running_loop().time(), 2))

    assert max(looks) < HOLD_BACK_US / SECOND


async def test_a_poll_waits_on_when_its_gateway_has_found_that_a_job_is_here(three: Three) -> None:
    _, first, _, third = three
    worker = HandWorker(slots=1)
    lease = await worker.take(first, at=third, task="demo")
    polling = await wait_at(third, worker, lease)
    (call,) = third.router._gateway._workers.list_polls()
    call.foreign.clear()
    call.answers.clear()

    call.wake()
    while call.is_woken and not polling.done():  # until the next turn begins
        await one_pass()
    await asyncio.wait([polling], timeout=WATCHED_S)

    assert not polling.done()
    polling.cancel()
