"""A frozen engine answers nothing; another engine opens its store, or it opens the store again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from schedo.core.commands import Flush
from schedo.core.leases import AttemptResult, Completed
from schedo.core.limits import MINUTE
from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.states import State
from schedo.core.worker_messages import PollRequest, Progress
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.command_queue import QueuedCommand
from schedo.errors import StoreError
from schedo.store.base import Store
from schedo.store.sqlite.lock import FileLock
from tests.engine.world import THRICE, Answers, World, recovered, running, spec
from tests.passes import one_pass
from tests.stores import needs_sqlite

OLD = "handover-7"
Submitting = asyncio.Future[Answers]
DRAINER = WorkerSpec(OLD, 1, frozenset(), polls=True)


@asynccontextmanager
async def succeeding(world: World) -> AsyncIterator[World]:
    """Yield a world on the files of the frozen one, as another process would open them."""
    await world.engine.stop()
    async with running(world.path) as successor:
        yield successor


def request(*running_: LeaseKey, **fields: object) -> PollRequest:
    poll = PollRequest(OLD, "s", DRAINER, frozenset(running_), is_draining=True, max_leases=0)
    return poll._replace(**fields)  # type: ignore[arg-type]


async def let_run(task: asyncio.Future[Any]) -> None:
    """Let the engine do what it can for the task."""
    await asyncio.wait([task], timeout=0.02)


async def test_a_freeze_answers_what_came_before_it_and_its_changes_are_durable(
    path: Path,
) -> None:
    async with running(path) as world:
        submitting: Submitting = asyncio.ensure_future(world.engine.submit([spec(delay_us=MINUTE)]))
        await let_run(submitting)

        await world.engine.freezing.freeze(OLD)
        [accepted] = await submitting

        async with succeeding(world) as successor:
            assert not isinstance(accepted, Exception)
            assert await successor.engine.get(accepted.job.id)


async def test_the_next_server_expects_the_running_attempts_from_the_old_process(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit()
        [lease] = world.worker.leases

        frozen = await world.engine.freezing.freeze(OLD)

        [(held, transport)] = frozen.held
        assert (held.key, transport, frozen.epoch) == (lease.key, world.worker, 1)
        async with succeeding(world) as successor:
            waiting = await successor.engine.get(job.id)
            assert (waiting.state, waiting.worker) == (State.RUNNING, OLD)
            await successor.engine.sessions.work(request(lease.key))
            result = AttemptResult(lease.key, Completed(b"5"))
            await successor.engine.sessions.work(request(reports=[result]))
            ended = await successor.engine.wait(job.id, 5)
            assert (ended.state, ended.attempt, ended.result) == (State.COMPLETED, 1, b"5")
            assert not successor.worker.leases


async def test_the_next_server_stops_an_attempt_of_the_old_process(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        [lease] = world.worker.leases
        await world.engine.freezing.freeze(OLD)

        async with succeeding(world) as successor:
            await successor.engine.cancel(job.id)
            response = await successor.engine.sessions.work(request(lease.key))

            assert [stop.key for stop in response.stops] == [lease.key]


async def test_a_lease_that_no_worker_has_received_is_released(path: Path) -> None:
    async with running(path) as world:
        world.store.hold()
        submitting: Submitting = asyncio.ensure_future(
            world.engine.submit([spec(at_most_once=True)])
        )
        await world.store.wait_held()
        freezing = asyncio.ensure_future(world.engine.freezing.freeze(OLD))
        world.store.release()
        frozen = await freezing
        [accepted] = await submitting

        assert not isinstance(accepted, Exception)
        sent = {lease.key for lease in world.worker.leases}
        assert sent == {lease.key for lease, _ in frozen.held}
        async with succeeding(world) as successor:
            job = await successor.engine.get(accepted.job.id)
            assert job.losses == 0


async def test_an_open_poll_ends_with_an_empty_response(path: Path) -> None:
    async with running(path) as world:
        far = WorkerSpec("far", 1, frozenset({"other"}), polls=True)
        polling = asyncio.ensure_future(
            world.engine.sessions.work(PollRequest("far", "s", far, frozenset(), wait_s=30.0))
        )
        await world.engine.flush()

        await world.engine.freezing.freeze(OLD)

        assert not (await polling).leases
        await world.engine.freezing.reopen()


async def test_a_wait_for_the_end_of_a_job_ends_with_the_freeze(path: Path) -> None:
    async with running(path) as world:
        answers: Answers = await world.engine.submit([spec(delay_us=MINUTE)])
        [accepted] = answers
        assert not isinstance(accepted, Exception)
        waiting = asyncio.ensure_future(world.engine.wait(accepted.job.id, 3_600.0))
        await let_run(waiting)

        await world.engine.freezing.freeze(OLD)

        job = await asyncio.wait_for(waiting, 10)
        assert job.state is State.SCHEDULED


async def test_a_wait_that_ends_before_the_freeze_returns_no_end_that_is_not_durable(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit()
        waiting = asyncio.ensure_future(world.engine.wait(job.id, 3_600.0))
        await one_pass()
        world.store.hold()
        world.worker.end()
        await world.store.wait_held()

        world.engine.freezing.end_waits()
        await let_run(waiting)
        assert not waiting.done()
        world.store.fail_next(StoreError("it flickered"))
        world.store.release()

        with pytest.raises(StoreError):
            await waiting


async def test_a_frozen_engine_starts_and_answers_nothing_until_it_is_open_again(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        await world.engine.freezing.freeze(OLD)
        world.clock.stall(2 * MINUTE)
        submitting: Submitting = asyncio.ensure_future(world.engine.submit([spec()]))
        await let_run(submitting)
        assert (world.worker.leases, submitting.done()) == ([], False)

        await world.engine.freezing.reopen()
        await submitting
        await world.engine.flush()

        assert job.id in {lease.key.job_id for lease in world.worker.leases}
        assert world.engine.health().epoch == 2


async def test_an_attempt_that_ran_through_a_freeze_ends_once_with_its_result(path: Path) -> None:
    async with running(path) as world:
        kept, ended = await world.submit(), await world.submit(retry=THRICE)
        await world.engine.freezing.freeze(OLD)
        world.worker.leases.reverse()
        world.worker.end()  # while the engine is frozen

        await world.engine.freezing.reopen()
        job = await world.engine.wait(ended.id, 5)
        running_job = await world.engine.get(kept.id)

        assert (job.state, job.attempt, job.losses) == (State.COMPLETED, 1, 0)
        assert (running_job.state, running_job.worker) == (State.RUNNING, "process-1")


async def test_what_workers_report_after_the_freeze_waits_for_the_process_that_drains(
    path: Path,
) -> None:
    async with running(path) as world:
        await world.submit()
        await world.engine.freezing.freeze(OLD)
        key = world.worker.leases[0].key
        said = Progress(key, ProgressUpdate(message="half"))
        world.engine.note_progress(said)
        world.worker.end()
        world.engine.detach("process-1", "it has ended")

        progress, result, command = await world.engine.freezing.take_late()

        assert progress == said
        assert isinstance(result, AttemptResult)
        assert isinstance(command, QueuedCommand)


async def test_the_figures_of_the_minute_are_saved_while_the_requests_in_progress_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        is_saved = asyncio.Event()
        save = world.store.save_minute

        async def save_minute(*args: Any) -> None:
            await save(*args)
            is_saved.set()

        monkeypatch.setattr(world.store, "save_minute", save_minute, raising=False)
        world.engine.series.sample()

        await world.engine.freezing.freeze(OLD, is_saved.wait())

        assert world.engine.freezing.is_frozen


async def test_a_freeze_whose_last_commit_fails_leaves_the_engine_open(path: Path) -> None:
    async with running(path) as world:
        running_job = await world.submit()
        await world.engine.flush()
        world.store.fail_next(StoreError("it flickered"))

        with pytest.raises(StoreError, match="flickered"):
            await world.engine.freezing.freeze(OLD)
        await recovered(world)

        world.worker.end()
        ended = await world.engine.wait(running_job.id, 5)
        assert (ended.state, ended.worker) == (State.COMPLETED, "process-1")


async def test_a_freeze_during_a_round_that_fails_leaves_the_engine_open(path: Path) -> None:
    async with running(path) as world:
        running_job = await world.submit()
        world.store.hold()
        submitting: Submitting = asyncio.ensure_future(world.engine.submit([spec(delay_us=MINUTE)]))
        await world.store.wait_held()
        freezing = asyncio.ensure_future(world.engine.freezing.freeze(OLD))
        await let_run(freezing)
        # The next round makes the freeze's flush durable, and then fails with this job's load.
        world.store.fail_loads(StoreError("it flickered"))
        cancelling = asyncio.ensure_future(world.engine.cancel(running_job.id + 1))
        await let_run(cancelling)
        world.store.release()

        with pytest.raises(StoreError, match="flickered"):
            await freezing
        await asyncio.gather(submitting, cancelling, return_exceptions=True)
        await recovered(world)

        world.worker.end()
        ended = await world.engine.wait(running_job.id, 5)
        assert (ended.state, ended.worker) == (State.COMPLETED, "process-1")


async def test_a_result_survives_a_command_that_breaks_a_freeze(path: Path) -> None:
    def fail(reply: None) -> None:
        raise ZeroDivisionError

    async with running(path) as world:
        running_job = await world.submit()
        world.store.hold()
        submitting: Submitting = asyncio.ensure_future(world.engine.submit([spec(delay_us=MINUTE)]))
        await world.store.wait_held()

        async def break_after_submit() -> None:
            await world.engine.submit([spec(delay_us=MINUTE)])
            world.engine._loop.enqueue(Flush(), fail)
            world.worker.end()

        breaking = asyncio.ensure_future(break_after_submit())
        await let_run(breaking)
        freezing = asyncio.ensure_future(world.engine.freezing.freeze(OLD))
        await let_run(freezing)
        world.store.release()  # the commit of the second submit has the flush of the freeze, too
        with pytest.raises(ZeroDivisionError):
            await freezing
        await asyncio.gather(submitting, breaking)

        ended = await world.engine.wait(running_job.id, 5)

        assert (ended.state, ended.attempt) == (State.COMPLETED, 1)


@needs_sqlite
async def test_a_freeze_whose_store_cannot_be_closed_leaves_the_engine_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FileLock) -> None:
        raise OSError("the lock file cannot be cleared")

    async with running(path) as world:
        running_job = await world.submit()
        with monkeypatch.context() as patched:
            patched.setattr(FileLock, "leave", fail)
            with pytest.raises(OSError, match="cannot be cleared"):
                await world.engine.freezing.freeze(OLD)

        world.worker.end()
        ended = await asyncio.wait_for(world.engine.wait(running_job.id, 5), 10)
        assert (ended.state, ended.attempt) == (State.COMPLETED, 1)


@needs_sqlite
async def test_a_reopen_that_fails_ends_the_process(path: Path) -> None:
    async with running(path) as world:
        await world.engine.freezing.freeze(OLD)
        store = cast(Store, world.store)
        await store.close()
        await asyncio.to_thread(path.write_bytes, b"not a database")

        with pytest.raises(StoreError):
            await world.engine.freezing.reopen()

        assert len(world.fatal) == 1


async def test_a_frozen_engine_can_stop(path: Path) -> None:
    async with running(path) as world:
        await world.engine.freezing.freeze(OLD)
        late: Submitting = asyncio.ensure_future(world.engine.submit([spec()]))
        await let_run(late)

        await world.engine.stop()

        with pytest.raises(Exception, match="stopped"):
            await late
