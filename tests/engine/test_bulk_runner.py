"""Operations on many jobs: found by search, changed step by step, continued by the next server."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.bulk_commands import BeginBulk
from schedo.core.ids import render_id
from schedo.core.job_commands import JobCommands
from schedo.core.job_filter import JobFilter
from schedo.core.leases import Failed
from schedo.core.limits import BULK_FAILURES_MAX, BULK_STEP_JOBS, BULK_STEP_JOBS_MAX, HOUR
from schedo.core.model import Failure
from schedo.core.states import State
from schedo.engine import bulk_runner, pacing
from schedo.engine import failures as engine_failures
from schedo.engine.pacing import BULK_JOBS_PER_S, BULK_PAUSE_S, BulkPace
from schedo.errors import NotFound, StoreError, StoreFull
from tests.engine.world import World, running, spec
from tests.store.steps import all_jobs
from tests.stores import needs_sqlite

CANCEL, RETRY, RUN, DELETE = BulkAction


async def begin(world: World, action: BulkAction, **which: Any) -> BulkOperation:
    jobs_max = which.pop("jobs_max", None)
    return await world.engine.bulk.begin(
        BeginBulk(action, JobFilter(**which), jobs_max=jobs_max, requested_by="ann")
    )


async def ended(world: World, number: int) -> BulkOperation:
    """Return the operation once it has ended."""
    async with asyncio.timeout(30):
        while True:
            for each in await world.engine.bulk.all() if world.engine.health().ready else ():
                if each.id == number and not each.is_active:
                    return each
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)


async def submit(world: World, count: int, **fields: object) -> list[int]:
    answers: Any = await world.engine.submit([spec(**fields) for _ in range(count)])
    return [each.job.id for each in answers]


async def states(world: World) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in await all_jobs(world.store):
        counts[job.state] = counts.get(job.state, 0) + 1
    return counts


async def test_all_jobs_that_match_are_changed_and_no_others(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schedo.engine")
    async with running(path) as world:
        await submit(world, 1_234, queue="mail", delay_us=HOUR)
        await submit(world, 5, delay_us=HOUR)

        operation = await ended(world, (await begin(world, CANCEL, queue="mail")).id)

        assert operation.state is BulkState.DONE
        assert (operation.total, operation.done, operation.skipped) == (1_234, 1_234, 0)
        assert await states(world) == {"cancelled": 1_234, "scheduled": 5}
        assert world.engine.bulk.jobs[CANCEL, "done"] == 1_234
        assert world.engine.bulk.count_active() == 0
    name = render_id(operation.id)
    assert f"operation {name} begins: cancel jobs with queue=mail, requested by ann" in caplog.text
    assert f"operation {name} is done: 1234 jobs done, 0 skipped, 0 failed of 1234" in caplog.text


async def test_jobs_that_are_submitted_meanwhile_are_not_touched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "BULK_STEP_JOBS", 10)
    async with running(path) as world:
        await submit(world, 100, delay_us=HOUR)

        operation = await begin(world, CANCEL, task="work")
        later = [await submit(world, 10, delay_us=HOUR) for _ in range(10)]
        await ended(world, operation.id)

        assert await states(world) == {"cancelled": 100, "scheduled": 100}
        assert min(map(min, later)) > operation.id


async def test_jobs_that_others_submit_meanwhile_slow_an_operation_down(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_FOUND_AT_ONCE", 50)
    pauses: list[float] = []
    find_pause_s = BulkPace.find_pause_s

    def note_pause(pace: BulkPace, now_s: float) -> float:
        pauses.append(find_pause_s(pace, pace._began_s))
        return 0.0

    monkeypatch.setattr(BulkPace, "find_pause_s", note_pause)
    async with running(path) as world:
        await submit(world, 200, delay_us=HOUR)
        await ended(world, (await begin(world, CANCEL, task="work")).id)
        alone = pauses.copy()
        pauses.clear()
        await submit(world, 200, delay_us=HOUR)
        find = world.store.find_job_ids

        async def find_and_submit(*arguments: Any) -> Any:
            await submit(world, 1, delay_us=HOUR, queue="other")
            return await find(*arguments)

        monkeypatch.setattr(world.store, "find_job_ids", find_and_submit)
        await ended(world, (await begin(world, CANCEL, task="work")).id)

    assert set(alone[1:]) == {BULK_PAUSE_S}  # before the first one, the jobs were submitted
    assert pauses == pytest.approx([BULK_STEP_JOBS / BULK_JOBS_PER_S] * len(pauses))


def test_alone_steps_are_short_and_follow_each_other() -> None:
    pace = BulkPace()
    pace.stepped(1.0, own=50, committed=50)

    assert pace.find_pause_s(1.003) == BULK_PAUSE_S
    assert pace.find_jobs(9.0) == BULK_STEP_JOBS


def test_beside_other_work_the_jobs_of_a_step_are_earned_by_time() -> None:
    pace = BulkPace()
    pace.stepped(1.0, own=50, committed=51)

    assert pace.find_pause_s(1.003) == pytest.approx(0.007)
    assert pace.find_jobs(1.010) == pytest.approx(50, abs=1)
    assert pace.find_pause_s(1.030) == BULK_PAUSE_S
    assert pace.find_jobs(1.032) == pytest.approx(160, abs=1)
    assert pace.find_jobs(2.0) == BULK_STEP_JOBS_MAX


async def test_operations_take_turns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runner, "_FOUND_AT_ONCE", 10)
    async with running(path) as world:
        await submit(world, 2_000, queue="large", delay_us=HOUR)
        await submit(world, 5, queue="small", delay_us=HOUR)

        large = await begin(world, CANCEL, queue="large")
        await ended(world, (await begin(world, CANCEL, queue="small")).id)

        [operation] = [each for each in await world.engine.bulk.all() if each.id == large.id]
        assert operation.is_active
        assert world.engine.bulk.count_active() == 1
        cancelled = await world.engine.bulk.cancel(large.id)
        assert cancelled.state is BulkState.CANCELLED
        assert (await world.engine.bulk.cancel(large.id)) == cancelled
        assert (await states(world))["cancelled"] == cancelled.done + 5


async def test_the_next_server_continues_where_the_last_one_was_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "BULK_STEP_JOBS", 10)
    async with running(path) as world:
        await submit(world, 300, delay_us=HOUR)
        operation = await begin(world, CANCEL, task="work")
        while operation.done < 50:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)
            [operation] = await world.engine.bulk.all()

    async with running(path) as world:
        [found] = await world.engine.bulk.all()
        assert 50 <= found.done < 300
        operation = await ended(world, found.id)

        assert (operation.done, operation.skipped) == (300, 0)
        assert await states(world) == {"cancelled": 300}


async def test_an_operation_continues_after_the_store_failed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_RETRY_S", AT_ONCE)
    async with running(path) as world:
        await submit(world, 300, delay_us=HOUR)
        failures = [StoreError("it flickered"), ValueError("a bug")] * 2
        fail_searches(monkeypatch, world, failures)
        operation = await ended(world, (await begin(world, CANCEL, task="work")).id)

        assert (operation.state, operation.done) == (BulkState.DONE, 300)
        assert (operation.failures, operation.error) == (0, None)
        assert failures == []


AT_ONCE = (0.001,) * (BULK_FAILURES_MAX - 1)


def fail_searches(monkeypatch: pytest.MonkeyPatch, world: World, failures: list[Exception]) -> None:
    """Let the next searches fail with these errors, the last one first."""
    find = world.store.find_job_ids

    async def fail(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await find(*arguments)

    monkeypatch.setattr(world.store, "find_job_ids", fail)


async def test_an_operation_fails_after_five_failures_in_a_row_and_the_others_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bulk_runner, "_RETRY_S", AT_ONCE)
    async with running(path) as world:
        await submit(world, 10, queue="good", delay_us=HOUR)
        await submit(world, 10, queue="bad", delay_us=HOUR)
        find = world.store.find_job_ids

        async def fail(which: JobFilter, *arguments: Any) -> Any:
            if which.queue == "bad":
                raise ValueError("a bug" + "!" * 2_000)
            return await find(which, *arguments)

        monkeypatch.setattr(world.store, "find_job_ids", fail)
        bad = await begin(world, CANCEL, queue="bad")
        good = await ended(world, (await begin(world, CANCEL, queue="good")).id)
        bad = await ended(world, bad.id)

        assert (good.state, good.done) == (BulkState.DONE, 10)
        assert (bad.state, bad.failures, bad.done) == (BulkState.FAILED, 5, 0)
        assert bad.error is not None
        assert bad.error.startswith("ValueError: a bug!")
        assert len(bad.error) == 1_000
    assert caplog.text.count(f"a step of operation {render_id(bad.id)} failed: ValueError") == 5
    assert f"operation {render_id(bad.id)} is failed: 0 jobs done" in caplog.text


@needs_sqlite
async def test_failures_are_counted_over_restarts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_RETRY_S", (0.001, 0.001, 3_600.0, 3_600.0))
    for failures in (3, 4, 5):
        async with running(path) as world:
            fail_searches(monkeypatch, world, [ValueError("a bug")] * 10)
            if failures == 3:
                await submit(world, 10, delay_us=HOUR)
                await begin(world, CANCEL, task="work")
            operation = (await world.engine.bulk.all())[0]
            while operation.failures < failures:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)
                [operation] = await world.engine.bulk.all()

    assert (operation.state, operation.failures) == (BulkState.FAILED, 5)


async def test_a_failing_operation_can_be_cancelled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_RETRY_S", (3_600.0,) * 4)
    async with running(path) as world:
        fail_searches(monkeypatch, world, [ValueError("a bug")])
        operation = await begin(world, CANCEL, task="work")
        while not operation.failures:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)
            [operation] = await world.engine.bulk.all()

        assert (await world.engine.bulk.cancel(operation.id)).state is BulkState.CANCELLED
        other = await begin(world, CANCEL, task="work")
        assert (await ended(world, other.id)).state is BulkState.DONE


async def test_a_full_disk_is_no_failure_of_an_operation(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_CLOSED_S", 0.001)
    async with running(path) as world:
        await submit(world, 10, delay_us=HOUR)
        fail_searches(monkeypatch, world, [StoreFull("the disk is full")] * 20)

        operation = await ended(world, (await begin(world, CANCEL, task="work")).id)

        assert (operation.state, operation.done) == (BulkState.DONE, 10)


async def test_a_bug_in_each_step_ends_the_operation_and_not_the_server(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_RETRY_S", AT_ONCE)
    monkeypatch.setattr(bulk_runner, "_CLOSED_S", 0.001)
    monkeypatch.setattr(engine_failures, "BUGS_PERIOD_S", 0.0)  # the real pauses are longer
    async with running(path) as world:
        await submit(world, 10, delay_us=HOUR)

        def fail(*arguments: Any) -> None:
            raise ValueError("a bug in the core")

        monkeypatch.setattr(JobCommands, "change", fail)
        operation = await ended(world, (await begin(world, CANCEL, task="work")).id)

        assert operation.state is BulkState.FAILED
        assert operation.error is not None
        assert "an internal error" in operation.error
        assert await states(world) == {"scheduled": 10}
        assert world.engine.health().ready


def test_the_bugs_of_one_operation_are_too_seldom_to_end_the_server() -> None:
    pauses = bulk_runner._RETRY_S

    assert len(pauses) == BULK_FAILURES_MAX - 1
    assert sum(pauses[-engine_failures.BUGS_MAX :]) > engine_failures.BUGS_PERIOD_S


async def test_a_long_search_without_a_job_is_durable_in_between(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_EMPTY_SEARCHES_MAX", 1)
    async with running(path) as world:
        first = await submit(world, 1, delay_us=HOUR)
        await submit(world, 1_200)
        befores = set()
        operation = await begin(world, CANCEL, state="scheduled", task="work")
        number = operation.id
        while operation.is_active:
            befores.add(operation.before)
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)
            [operation] = await world.engine.bulk.all()

        assert operation.done == 1
        assert (await world.engine.get(first[0])).state is State.CANCELLED
        assert befores >= {number}


async def test_a_count_without_time_is_exact_for_the_jobs_since_an_instant(path: Path) -> None:
    async with running(path) as world:
        await submit(world, 1_200)
        everything = JobFilter(task="work")

        counted = await world.engine.bulk.count(everything, most_s=0)

        assert counted.since is not None
        assert 500 <= counted.jobs < 1_200
        newer = JobFilter(task="work", created_after=counted.since)
        assert await world.engine.bulk.count(newer) == (counted.jobs, None)
        assert await world.engine.bulk.count(everything) == (1_200, None)


async def test_failed_jobs_are_retried_and_ended_jobs_are_deleted(path: Path) -> None:
    async with running(path) as world:
        first = await world.submit()
        second = await world.submit()
        world.worker.end(Failed(Failure("boom", "no route"), retryable=False))
        world.worker.end(Failed(Failure("boom", "no disk"), retryable=False))
        await world.engine.wait(second.id, 5)

        assert await world.engine.bulk.count(JobFilter(error="route")) == (1, None)
        retried = await ended(world, (await begin(world, RETRY, error="no route")).id)
        await world.engine.flush()
        deleted = await ended(world, (await begin(world, DELETE, task="work")).id)

        assert (retried.done, deleted.done) == (1, 1)
        assert (await world.engine.get(first.id)).state is State.RUNNING
        with pytest.raises(NotFound):
            await world.engine.get(second.id)


async def test_an_operation_on_more_jobs_than_expected_changes_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schedo.engine")
    async with running(path) as world:
        await submit(world, 11, delay_us=HOUR)

        begun = await begin(world, CANCEL, jobs_max=10, task="work")
        operation = await ended(world, begun.id)

        assert (operation.state, operation.total) == (BulkState.REFUSED, 11)
        assert await states(world) == {"scheduled": 11}
    assert "is refused: 0 jobs done, 0 skipped, 0 failed of 11" in caplog.text


async def test_a_single_job_is_deleted(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=HOUR)
        await world.engine.cancel(job.id)

        await world.engine.delete(job.id)

        with pytest.raises(NotFound):
            await world.engine.get(job.id)
