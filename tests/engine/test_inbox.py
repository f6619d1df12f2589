"""The reader of an inbox: when it looks, what it does after a failure, and what it logs."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schedo.core.ids import SQL_SLOT, first_id
from schedo.core.inbox import Enqueued
from schedo.core.limits import HOUR
from schedo.core.model import Job, JobSpec
from schedo.core.states import State
from schedo.engine import inbox
from schedo.errors import NotFound, SchedoError, StoreError, Unavailable
from schedo.store.inbox import InboxRow
from tests.engine.world import T0, World, recovered, running, spec
from tests.passes import one_pass
from tests.stores import IN_POSTGRES

# tests/store/test_postgres_inbox.py and tests/e2e/test_sql.py are about the rows of the table.
pytestmark = pytest.mark.skipif(
    IN_POSTGRES, reason="its rows are in memory, and PostgreSQL takes only those of the table"
)
ID = first_id(T0) + SQL_SLOT


class Rows:
    """An inbox in memory: a row is gone when the store has its job."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rows: list[InboxRow] = []
        self._returned: set[int] = set()
        self.errors: list[Exception] = []
        self.notify = asyncio.Event().set

    def add(self, number: int = 0, text: str = "work") -> int:
        row = InboxRow(ID + 64 * number, text)
        self.rows.append(row)
        self.notify()
        return row.id

    async def read(self) -> Sequence[InboxRow]:
        if self.errors:
            raise self.errors.pop()
        found = [row for row in self.rows if row.id not in self._returned]
        found = [row for row in found if await self.find(row.id)]
        self._returned |= {row.id for row in found}
        return found

    async def find(self, job_id: int) -> InboxRow | None:
        if await self._world.store.get_job(job_id) is not None:
            return None
        return next((row for row in self.rows if row.id == job_id), None)

    def restart(self) -> None:
        self._returned.clear()


class RowsOfOthers(Rows):
    """The rows are in shards of another server, which takes one when it is asked for again."""

    async def read(self) -> Sequence[InboxRow]:
        return []

    async def find(self, job_id: int) -> InboxRow | None:
        found = [row for row in self.rows if row.id == job_id]
        self.rows = [row for row in self.rows if row not in found or self.keeps]
        return found[0]._replace(is_own=False) if found else None

    keeps = False


def read_rows(rows: Sequence[InboxRow]) -> Generator[None, None, list[Enqueued]]:
    yield
    return [
        Enqueued(row.id, JobSpec("work"), "it is odd")
        if row.spec == "odd"
        else Enqueued(row.id, spec(tags=(row.spec,), delay_us=HOUR if row.spec == "later" else 0))
        for row in rows
    ]


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[tuple[World, Rows]]:
    """A started world whose inbox is read only when a client has notified it."""
    async with running(path) as world:
        rows = Rows(world)
        world.engine.inbox.use(rows, read_rows)
        world.engine.inbox.start()
        yield world, rows


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "IDLE_S", 60.0)
    monkeypatch.setattr(inbox, "BUSY_S", 60.0)
    monkeypatch.setattr(inbox, "_FAILED_S", 0.01)


async def durable(world: World, job_id: int) -> Job:
    """Return the job when the reader has taken it."""
    while True:
        try:
            return await world.engine.get(job_id)
        except SchedoError:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)


async def test_a_client_that_notifies_wakes_the_reader(path: Path) -> None:
    async with reading(path) as (world, rows):
        rows.add()
        while not world.worker.leases:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)

        assert world.worker.leases[0].key.job_id == ID
        assert (await world.engine.get(ID)).options.tags == ("work",)


async def test_without_a_notice_a_request_for_its_id_takes_the_row(path: Path) -> None:
    async with reading(path) as (world, rows):
        rows.notify = lambda: None
        first, second = rows.add(text="later"), rows.add(1, "later")

        cancelled = await world.engine.cancel(second)

        assert cancelled.state is State.CANCELLED
        assert (await world.engine.get(first)).state is State.SCHEDULED
        with pytest.raises(NotFound):
            await world.engine.get(ID + 64 * 9)
        assert world.engine.durable_at(first) is None


async def test_a_row_of_another_server_is_waited_for_and_not_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "BUSY_S", 0.001)
    monkeypatch.setattr(inbox, "_OTHER_S", 0.01)
    async with running(path) as world:
        rows = RowsOfOthers(world)
        world.engine.inbox.use(rows, read_rows)
        world.engine.inbox.start()
        with pytest.raises(NotFound):  # the other one has taken it, into another store here
            await world.engine.get(rows.add())
        rows.keeps = True

        with pytest.raises(Unavailable, match="has not done it yet"):
            await world.engine.get(rows.add(1))


async def ask(world: World, rows: Rows) -> asyncio.Task[Job]:
    """Add a row and ask for its id; return the caller, which waits for the commit."""
    rows.notify = lambda: None
    world.store.hold()
    caller = asyncio.create_task(world.engine.get(rows.add()))
    await world.store.wait_held()
    return caller


async def leave(caller: asyncio.Task[Job]) -> None:
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()


async def test_a_row_whose_caller_leaves_during_the_commit_is_not_taken_again(path: Path) -> None:
    async with reading(path) as (world, rows):
        await leave(await ask(world, rows))

        assert await rows.read() == []
        poll = asyncio.create_task(world.engine.inbox._poll())
        world.store.release()
        assert await poll == 0
        assert len(world.worker.leases) == 1
        assert world.store.failures == 0


async def read_meanwhile(world: World) -> None:
    """Let the reader take a row, which takes some reads of the store, if it does not wait."""
    for _ in range(5):
        await world.store.get_job(ID)
        await one_pass()


async def test_a_row_whose_commit_is_in_doubt_is_not_taken_again_before_its_outcome(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that doubts its shards fails the replies, and keeps its scheduler."""
    async with reading(path) as (world, rows):
        caller = await ask(world, rows)
        world.engine._loop.suspend()
        with pytest.raises(SchedoError, match="does not know whether it still owns"):
            await caller
        world.engine._loop.resume()

        poll = asyncio.create_task(world.engine.inbox._poll())
        await read_meanwhile(world)
        world.store.release()

        assert await poll == 0
        await world.engine.flush()
        assert len(world.worker.leases) == 1
        assert "the store failed" not in caplog.text


async def test_a_commit_that_fails_when_its_caller_has_left_is_the_error_of_nobody(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reading(path) as (world, rows):
        await leave(await ask(world, rows))
        world.store.fail_next(StoreError("the session is lost"))
        world.store.release()
        await recovered(world)

        assert (await durable(world, ID)).id == ID
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_caller_whose_row_is_being_taken_when_the_reader_stops_gets_an_error(
    path: Path,
) -> None:
    async with reading(path) as (world, rows):
        caller = await ask(world, rows)

        await world.engine.inbox.stop()

        with pytest.raises(Unavailable, match="has stopped"):
            await caller
        assert not [each for each in asyncio.all_tasks() if "inbox" in each.get_name()]


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
async def test_rows_of_a_commit_that_failed_become_jobs_once(path: Path, is_written: bool) -> None:
    async with reading(path) as (world, rows):
        fail = world.store.fail_after if is_written else world.store.fail_next
        fail(StoreError("the session is lost"))
        rows.add()
        await recovered(world)

        job = await durable(world, ID)

        assert (job.id, job.attempt <= 1) == (ID, True)
        assert world.store.failures == 1


async def test_errors_of_the_inbox_are_logged_once_and_the_reader_goes_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schedo.engine")
    async with reading(path) as (world, rows):
        rows.errors = [StoreError("no session") for _ in range(3)]
        rows.add()
        while rows.errors:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)
        await durable(world, ID)
        while "the inbox is read again" not in caplog.messages:
            await one_pass()

    assert [each for each in caplog.messages if "the inbox" in each] == [
        "the inbox waits: no session",
        "the inbox is read again",
    ]
