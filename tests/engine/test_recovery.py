"""After a failed commit, a restart or a lost worker, nothing acknowledged is missing."""

import asyncio
import contextlib
import os
import types
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from schedo.clock import SystemClock
from schedo.core.commands import Flush, Reschedule
from schedo.core.keep import KeepTimes
from schedo.core.limits import MINUTE, SECOND
from schedo.core.loads import Load, LoadJob
from schedo.core.model import Job
from schedo.core.states import State
from schedo.engine.engine import Engine
from schedo.errors import (
    NotFound,
    SchedoError,
    StoreBroken,
    StoreError,
    StoreFull,
    StoreLocked,
)
from schedo.store.sqlite.store import SqliteStore
from tests.engine.world import T0, World, leased, recovered, running
from tests.store.steps import all_jobs
from tests.stores import needs_sqlite


async def test_a_failed_commit_raises_and_leaves_no_job(path: Path) -> None:
    async with running(path) as world:
        world.store.fail_next(StoreFull("no room"))
        with pytest.raises(StoreFull):
            await world.submit()

        await recovered(world)

        assert await all_jobs(world.store) == []


async def test_a_running_attempt_survives_a_failed_commit(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        world.store.fail_next(StoreError("it flickered"))
        world.clock.stall(MINUTE)  # the start is the commit that fails
        await asyncio.wait([asyncio.create_task(leased(world))], timeout=5)
        await recovered(world)

        world.worker.end()
        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt, ended.losses) == (State.COMPLETED, 1, 0)


async def test_a_result_survives_a_command_that_breaks_its_turn(path: Path) -> None:
    def fail(reply: None) -> None:
        raise ZeroDivisionError

    async with running(path) as world:
        job = await world.submit()
        world.engine._loop.enqueue(Flush(), fail)
        world.worker.end()

        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt, ended.losses) == (State.COMPLETED, 1, 0)


async def test_a_result_survives_its_failed_commit(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.store.fail_next(StoreError("it flickered"))
        world.worker.end()
        await recovered(world)

        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt) == (State.COMPLETED, 1)


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "not kept"])
async def test_a_wait_ends_if_the_commit_of_the_end_is_durable_though_it_fails(
    path: Path, is_kept: bool
) -> None:
    async with running(path) as world:
        job = await world.submit(**({} if is_kept else {"keep": KeepTimes(completed_us=0)}))
        waiting = asyncio.ensure_future(world.engine.wait(job.id, 3_600.0))
        await world.engine.flush()
        world.store.fail_after(StoreError("it flickered"))
        world.worker.end()
        await recovered(world)

        with contextlib.nullcontext() if is_kept else pytest.raises(NotFound, match="deleted"):
            assert (await asyncio.wait_for(waiting, 5)).state is State.COMPLETED


async def test_a_wait_goes_on_if_the_commit_of_a_cancel_fails(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        waiting = asyncio.ensure_future(world.engine.wait(job.id, 3_600.0))
        await world.engine.flush()
        world.store.fail_next(StoreError("it flickered"))
        with pytest.raises(StoreError, match="flickered"):
            await world.engine.cancel(job.id)
        await recovered(world)
        assert not waiting.done()

        await world.engine.cancel(job.id)

        assert (await asyncio.wait_for(waiting, 5)).state is State.CANCELLED


async def test_after_a_restart_an_attempt_of_the_old_server_is_lost_and_tried_again(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit()
        await world.engine.flush()
    async with running(path) as world:
        again = await world.engine.get(job.id)

        assert (again.attempt, again.losses, again.failures) == (2, 0, 0)
        assert world.worker.leases[0].key.attempt == 2
        await world.engine.flush()
        (lost,) = await world.store.list_attempts(job.id)
        # Another server may go on with the job, so the text speaks of no restart.
        assert lost.failure is not None
        assert lost.failure.message == "the server that ran it is gone"


async def test_after_a_restart_a_job_that_runs_at_most_once_is_not_repeated(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(at_most_once=True)
        await world.engine.flush()
    async with running(path) as world:
        ended = await world.engine.get(job.id)

        assert (ended.state, ended.attempt) == (State.FAILED, 1)
        assert not world.worker.leases


async def test_after_a_restart_delayed_jobs_run_on_time(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)
    async with running(path, now=T0 + SECOND) as world:
        await world.run_until(T0 + MINUTE)

        assert len(world.worker.leases) == 1


async def test_a_worker_that_detaches_loses_its_attempts(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.engine.detach("process-1", "it hung up")
        await world.engine.flush()

        again = await world.engine.get(job.id)

        assert (again.state, again.losses) == (State.QUEUED, 1)


async def test_a_worker_that_is_closed_gets_no_attempt_after_a_failed_commit(path: Path) -> None:
    async with running(path) as world:
        world.engine.close_worker("process-1")
        world.store.fail_next(StoreError("it flickered"))
        with pytest.raises(StoreError, match="flickered"):
            await world.submit()
        await recovered(world)

        await world.submit()
        assert not world.worker.leases

        world.worker.attach()
        await asyncio.wait_for(leased(world), 5)


async def test_a_stale_result_changes_nothing(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        stale = world.worker.leases[0]
        world.engine.detach("process-1", "it hung up")
        world.worker.attach()
        await world.engine.flush()

        world.worker.leases = [stale, *world.worker.leases]
        world.worker.end()
        await world.engine.flush()

        assert (await world.engine.get(job.id)).state is State.RUNNING
        assert [a.outcome for a in await world.store.list_attempts(job.id)] == ["lost", "stale"]


async def test_changes_of_a_broken_callback_are_not_committed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        do, beside = world.store.load, []

        async def load_while_something_comes(load: Load) -> Any:
            if not isinstance(load, LoadJob):
                return await do(load)
            found = await do(LoadJob(job.id))
            beside.append(asyncio.create_task(world.engine.cancel(job.id)))
            await turned()  # now there is a change to commit, and the committer is awake
            return found

        def fail(found: Job) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(world.store, "load", load_while_something_comes)
        world.engine._loop.enqueue(Reschedule(12_345, priority=1), fail)
        while not beside:
            await turned()
        with pytest.raises(StoreError):
            await beside[0]
        while not world.engine.health().ready:
            await turned()

        assert (await world.engine.get(job.id)).state is State.SCHEDULED


@types.coroutine
def next_iteration() -> Generator[None, None, None]:
    """Run all callbacks that are ready now, but none that they make ready."""
    yield


def break_store(
    world: World, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Coroutine[Any, Any, object]]
) -> list[asyncio.Task[object]]:
    """Break the store at the next commit, just after `ask` was called; return its task."""
    asked: list[asyncio.Task[object]] = []

    async def commit(changes: object) -> None:
        asked.append(asyncio.create_task(ask()))
        await next_iteration()
        raise StoreBroken("the disk")

    monkeypatch.setattr(world.store, "commit", commit)
    return asked


async def test_a_caller_gets_the_error_when_the_store_breaks_during_its_call(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        asked = break_store(world, monkeypatch, world.submit)
        with pytest.raises(StoreError):
            await world.submit()

        await asyncio.wait(asked, timeout=5)

        assert isinstance(asked[0].exception(), StoreBroken)


async def test_a_submit_in_flight_has_an_unknown_outcome_when_the_disk_fails(path: Path) -> None:
    async with running(path) as world:
        world.store.hold()
        world.store.fail_after(StoreBroken("the disk"))
        in_flight = asyncio.create_task(world.submit())
        await world.store.wait_held()
        behind_it = asyncio.create_task(world.submit())  # it acts, and waits for the next commit
        await next_iteration()
        world.store.release()
        await asyncio.wait([in_flight, behind_it])

        codes = [getattr(task.exception(), "code", None) for task in (in_flight, behind_it)]
        assert codes == ["outcome-unknown", "outcome-unknown"]
        with pytest.raises(StoreBroken):  # later commands cannot have been carried out
            await world.submit()

        assert len(await all_jobs(world.store)) == 1


async def test_a_submit_in_flight_has_an_unknown_outcome_when_a_turn_breaks(path: Path) -> None:
    def break_turn(reply: None) -> None:
        raise RuntimeError("a bug")

    async with running(path) as world:
        world.store.hold()
        in_flight = asyncio.create_task(world.submit())
        await world.store.wait_held()
        world.engine._loop.enqueue(Flush(), break_turn)
        with pytest.raises(StoreError) as caught:
            await in_flight

        assert caught.value.code == "outcome-unknown"


async def test_a_stop_returns_even_if_the_store_breaks_during_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        asked = break_store(world, monkeypatch, world.engine._loop.stop)
        with pytest.raises(SchedoError):
            await world.submit()

        await asyncio.wait(asked, timeout=5)

        assert asked[0].result() is None


@needs_sqlite
async def test_an_engine_that_cannot_start_leaves_no_file_open(path: Path) -> None:
    async with running(path) as world:
        await world.engine.gauges()  # the count of the waiting jobs has closed its connection
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with pytest.raises(StoreLocked):
                await Engine(SqliteStore(path), SystemClock()).start()

        assert len(os.listdir("/proc/self/fd")) == before


async def turned() -> None:
    """Return after the loop has turned once."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.001)
