"""Rows of the inbox that are refused: their jobs, the log, and the other rows beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedo.core.ids import ID_MAX, render_id
from schedo.core.job_maker import JobMaker
from schedo.core.model import Job, JobSpec
from schedo.core.states import State
from schedo.engine.failures import BUGS_MAX
from schedo.errors import NotFound, StoreError, StoreRefused
from schedo.store.inbox import InboxRow
from tests.engine.test_inbox import ID, durable, quick, reading
from tests.engine.world import recovered
from tests.passes import one_pass
from tests.stores import IN_POSTGRES

__all__ = ["quick"]
pytestmark = pytest.mark.skipif(
    IN_POSTGRES, reason="its rows are in memory, and PostgreSQL takes only those of the table"
)


async def test_a_row_that_the_store_refuses_fails_and_the_others_go_on(path: Path) -> None:
    async with reading(path) as (world, rows):
        world.store.fail_next(StoreRefused("a value is refused", {ID: "too long an entry"}))
        rows.add()
        other = rows.add(1)

        refused, taken = await durable(world, ID), await durable(world, other)

        assert refused.state is State.FAILED
        assert refused.failure is not None
        assert refused.failure.message == "the job cannot be taken: too long an entry"
        assert taken.state is not State.FAILED


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the core fail on each row with the text `bug`."""
    make = JobMaker.make_numbered

    def fail(maker: JobMaker, job_id: int, spec: JobSpec, now: int) -> Job:
        if spec.options.tags == ("bug",):
            raise ValueError("a bug")
        return make(maker, job_id, spec, now)

    monkeypatch.setattr(JobMaker, "make_numbered", fail)


@pytest.mark.usefixtures("bug")
async def test_rows_on_which_a_bug_fails_are_refused_after_one_recovery_and_the_others_go_on(
    path: Path,
) -> None:
    async with reading(path) as (world, rows):
        for number in range(20):
            rows.add(number, "bug" if number % 2 else "work")

        jobs = [await durable(world, row.id) for row in rows.rows]

        assert [job.state is State.FAILED for job in jobs] == [False, True] * 10
        assert jobs[1].failure is not None
        assert "an internal error (ValueError)" in jobs[1].failure.message
        assert world.fatal == []


@pytest.mark.usefixtures("bug")
async def test_a_client_that_submits_rows_on_which_a_bug_fails_again_and_again_ends_no_server(
    path: Path,
) -> None:
    async with reading(path) as (world, rows):
        for number in range(BUGS_MAX + 1):
            assert (await durable(world, rows.add(number, "bug"))).state is State.FAILED

        assert world.fatal == []
        assert world.engine.health().ready


async def test_a_client_whose_rows_the_store_refuses_again_and_again_ends_no_server(
    path: Path,
) -> None:
    async with reading(path) as (world, rows):
        for number in range(BUGS_MAX):
            job_id = ID + 64 * number
            world.store.fail_next(*[StoreRefused("a value is refused", {job_id: "it is odd"})] * 2)
            rows.add(number)
            other = await durable(world, rows.add(BUGS_MAX + number))
            assert other.state is not State.FAILED

        assert world.store.failures == 2 * BUGS_MAX
        assert world.fatal == []


async def test_a_row_that_the_store_refuses_also_as_refused_is_set_aside_and_the_others_go_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reading(path) as (world, rows):
        refusal = StoreRefused("a value is refused", {ID: "its id exists"})
        world.store.fail_next(*[refusal] * 2)
        rows.add()
        assert (await durable(world, rows.add(1))).state is not State.FAILED

        with pytest.raises(NotFound):
            await world.engine.get(ID)
        assert (await durable(world, rows.add(2))).state is not State.FAILED
        assert (world.store.failures, world.fatal) == (2, [])
    assert [each for each in caplog.messages if "stays in the inbox" in each] == [
        f"job {render_id(ID)}, which SQL has submitted, stays in the inbox until the next start:"
        " the job cannot be taken: its id exists"
    ]


async def test_a_row_that_is_set_aside_counts_for_nothing_when_it_is_read_again(path: Path) -> None:
    async with reading(path) as (world, rows):
        world.store.fail_next(*[StoreRefused("a value is refused", {ID: "its id exists"})] * 2)
        rows.add()
        await durable(world, rows.add(1))

        rows.restart()

        assert await world.engine.inbox._poll() == 0


async def test_a_row_that_is_not_accepted_becomes_a_failed_job(path: Path) -> None:
    async with reading(path) as (world, rows):
        job = await durable(world, rows.add(text="odd"))

        assert job.failure is not None
        assert (job.state, job.failure.message) == (State.FAILED, "it is odd")


async def test_a_row_that_is_not_accepted_is_in_the_log_and_among_the_failures(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reading(path) as (world, rows):
        job = await durable(world, rows.add(text="odd"))
        while "is refused and never runs" not in caplog.text:
            await one_pass()

        [group] = world.engine.failures.latest()
    assert (group.key.type, group.key.message, group.last_job) == ("refused", "it is odd", job.id)
    assert (group.count, group.failed_jobs) == (1, 1)


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
async def test_a_row_is_logged_as_refused_once_that_is_durable(
    path: Path, caplog: pytest.LogCaptureFixture, is_written: bool
) -> None:
    async with reading(path) as (world, rows):
        world.store.hold()
        rows.add(text="odd")
        await world.store.wait_held()
        await one_pass()
        assert "never runs" not in caplog.text
        fail = world.store.fail_after if is_written else world.store.fail_next
        fail(StoreError("the session is lost"))
        world.store.release()
        await recovered(world)
        assert ("never runs" in caplog.text) is is_written

        await durable(world, ID)
        await one_pass()

        [group] = world.engine.failures.latest()
    assert caplog.text.count("never runs") == group.count == 1


@pytest.mark.parametrize("made_up", [-2, 0, 1, ID + 1, ID_MAX - 1], ids=str)
async def test_a_row_with_an_id_that_enqueue_does_not_give_stays_and_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture, made_up: int
) -> None:
    async with reading(path) as (world, rows):
        rows.rows.append(InboxRow(made_up, "work"))
        await durable(world, rows.add())
        rows.restart()
        await durable(world, rows.add(1))

        assert await rows.find(made_up) is not None
        assert await world.submit() is not None
    assert caplog.text.count(f"enqueue gives no such id as {made_up}: this row") == 1
