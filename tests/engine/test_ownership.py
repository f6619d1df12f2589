"""An engine whose server shares the store: it follows its shards, and starts nothing in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from schedo.core.changes import Changes
from schedo.core.limits import MINUTE, SECOND
from schedo.core.loads import Load, LoadJob
from schedo.core.model import Job, LeaseKey, Unique
from schedo.core.shards import SHARDS, shard_of
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.call_results import Accepted
from schedo.engine.homes import texts_of
from schedo.engine.ownership import Ownership
from schedo.errors import NotFound, StoreError, Unavailable
from schedo.store.base import Snapshot, Store
from tests.core.remote_site import make_poll
from tests.engine.world import Answers, World, running, spec
from tests.passes import one_pass

DOUBT = "this server does not know whether it still owns its jobs"


class Shards:
    """A cluster whose shards the test moves by hand."""

    def __init__(self) -> None:
        self.on_due: Callable[[], None] = lambda: None
        self.is_known = True
        self.mine = {*range(SHARDS)}
        self.given: set[int] = set()
        self.has_inherited = False
        self.moved: set[int] = set()  # the jobs of shard 1; the others are in shard 0
        self.ended: list[int] = []  # at the other servers
        self.failures: list[Exception] = []

    async def shards_of_jobs(self, job_ids: Sequence[int]) -> Mapping[int, int]:
        return {job_id: 1 if job_id in self.moved else 0 for job_id in job_ids}

    async def find_ended(self, job_ids: Sequence[int]) -> Sequence[int]:
        if self.failures:
            raise self.failures.pop()
        return [job_id for job_id in job_ids if job_id in self.ended]

    def is_sure(self) -> bool:
        return self.is_known

    def is_mine(self, shard: int) -> bool:
        return shard in self.mine

    def is_change_due(self) -> bool:
        return bool(self.given)

    def take_inherited(self) -> bool:
        has_inherited, self.has_inherited = self.has_inherited, False
        return has_inherited

    async def change_shards(self) -> None:
        self.mine -= self.given
        self.given = set()

    async def leave(self) -> None:
        self.given = {*range(1, SHARDS)}

    def leave_last(self) -> None:
        self.given = {0}

    @property
    def has_given(self) -> bool:
        return not self.given


@asynccontextmanager
async def sharing(path: Path) -> AsyncIterator[tuple[World, Shards]]:
    async with running(path) as world:
        shards = Shards()
        loop, store = world.engine._loop, world.engine.store
        world.engine.ownership = Ownership(loop, store, shards)  # type: ignore[arg-type]
        yield world, shards


async def test_a_server_in_doubt_starts_nothing_and_goes_on_when_it_is_sure(path: Path) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit(delay_us=SECOND)
        shards.is_known = False
        await world.run_until(world.clock.now() + MINUTE)

        assert not world.worker.leases
        assert DOUBT in world.engine.health().reasons
        shards.is_known = True
        shards.on_due()
        await world.engine.flush()

        assert [lease.key.job_id for lease in world.worker.leases] == [job.id]
        assert DOUBT not in world.engine.health().reasons


async def test_requests_wait_for_a_server_in_doubt_for_a_second_at_most(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.engine.ownership.LOOK_S", 0.001)
    monkeypatch.setattr("schedo.engine.ownership.RESTART_S", 0.01)
    async with sharing(path) as (world, shards):
        committing = asyncio.Event()
        never, commit = asyncio.Event(), world.engine.store.commit

        async def hang(changes: Changes) -> None:
            committing.set()
            await never.wait()
            await commit(changes)

        monkeypatch.setattr(world.engine.store, "commit", hang)
        applied = asyncio.ensure_future(world.submit())
        await committing.wait()
        shards.is_known = False

        with pytest.raises(StoreError, match="does not know whether it still owns"):
            await applied
        with pytest.raises(Unavailable, match="does not know whether it still owns"):
            await world.submit()

        shards.is_known = True
        shards.on_due()
        never.set()
        await world.submit()
        assert len(world.worker.leases) == 2


async def test_a_result_that_comes_in_doubt_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit()
        shards.is_known = False
        world.worker.end()
        world.engine._loop.suspend()

        shards.is_known = True
        shards.on_due()
        await world.engine.flush()

        assert (await world.engine.get(job.id)).state is State.COMPLETED


def read_running_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store read the running jobs apart from its snapshots, as PostgreSQL does."""

    async def strip(read: Callable[[], Awaitable[Snapshot]]) -> Snapshot:
        return replace(await read(), running=None)

    for name in ("open", "snapshot"):
        monkeypatch.setattr(store, name, partial(strip, getattr(store, name)))


async def test_a_start_during_which_others_take_the_shards_begins_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(path)
    world.engine._loop.is_sure = lambda: True
    store, failures = world.engine.store, [StoreError("PostgreSQL ends the session")]
    read_running_apart(store, monkeypatch)
    load_running = store.load_running

    async def fail_first(after: int, limit: int) -> list[Job]:
        if failures:
            raise failures.pop()
        return await load_running(after, limit)

    monkeypatch.setattr(store, "load_running", fail_first)
    await world.engine.start()

    assert (await world.submit(delay_us=SECOND)).state is State.SCHEDULED
    await world.engine.stop()


async def test_a_change_of_shards_loses_no_job_and_no_attempt(path: Path) -> None:
    async with sharing(path) as (world, shards):
        running_job = await world.submit()
        waiting = await world.submit(delay_us=MINUTE)
        before = world.engine.health().epoch
        accepting = asyncio.ensure_future(world.submit(delay_us=MINUTE))

        assert world.engine.ownership is not None
        await world.engine.ownership.leave()
        later = await accepting

        assert shards.mine == {0}
        assert world.engine.health().epoch > before
        world.worker.end()
        await world.engine.flush()
        assert (await world.engine.get(running_job.id)).state is State.COMPLETED
        for job in (waiting, later):
            assert (await world.engine.get(job.id)).state is State.SCHEDULED
        await world.engine.ownership.leave_last()
        assert not shards.mine


async def test_a_new_job_that_comes_while_the_last_shard_is_given_away_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(path) as (world, shards):
        change, submitting = shards.change_shards, list[asyncio.Future[Job]]()

        async def change_late() -> None:
            if not shards.mine - shards.given:
                submitting.append(asyncio.ensure_future(world.submit()))
                await one_pass()
            await change()

        monkeypatch.setattr(shards, "change_shards", change_late)
        assert world.engine.ownership is not None
        await world.engine.ownership.leave()
        await world.engine.ownership.leave_last()

        for refused in (submitting[0], world.submit()):
            with pytest.raises(Unavailable, match="moved to another server"):
                await refused


async def test_an_attempt_of_a_job_that_another_server_has_taken_is_stopped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(path) as (world, shards):
        taken, kept, ended = [await world.submit() for _ in range(3)]
        key = world.worker.leases[0].key
        world.worker.leases.append(world.worker.leases.pop(0))
        world.worker.leases.append(world.worker.leases.pop(0))
        world.worker.end()  # the third one
        read_running_apart(world.engine.store, monkeypatch)
        load_running, load = world.engine.store.load_running, world.engine.store.load

        async def load_own_running(after: int, limit: int) -> list[Job]:
            return [job for job in await load_running(after, limit) if job.id != taken.id]

        async def load_own(wanted: Load) -> object:
            return None if wanted == LoadJob(taken.id) else await load(wanted)

        monkeypatch.setattr(world.engine.store, "load_running", load_own_running)
        monkeypatch.setattr(world.engine.store, "load", load_own)
        await world.engine._loop.restart(shards.change_shards)

        assert [(stop.key, stop.reason) for stop in world.worker.stops] == [(key, "cancel")]
        assert (await world.engine.get(kept.id)).state is State.RUNNING
        assert (await world.engine.get(ended.id)).state is State.COMPLETED


async def test_an_attempt_before_the_one_of_another_server_is_stopped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit()
        read_running_apart(world.engine.store, monkeypatch)
        key, load_running = world.worker.leases[0].key, world.engine.store.load_running

        async def load_later_attempt(after: int, limit: int) -> list[Job]:
            found = await load_running(after, limit)
            for each in found:
                each.attempt += 1
            return found

        monkeypatch.setattr(world.engine.store, "load_running", load_later_attempt)
        await world.engine._loop.restart(shards.change_shards)

        assert [stop.key for stop in world.worker.stops] == [key]
        assert (await world.engine.get(job.id)).attempt > key.attempt


async def test_a_start_that_is_not_durable_does_not_revive_a_job_that_another_server_has_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit()
        read_running_apart(world.engine.store, monkeypatch)
        key = world.worker.leases[0].key
        ended = await world.engine.get(job.id)
        ended.state, ended.attempt, ended.ended_at = State.CANCELLED, 0, world.clock.now()

        async def load_none(after: int, limit: int) -> list[Job]:
            return []

        async def load_ended(wanted: Load) -> object:
            assert wanted == LoadJob(job.id)
            return ended

        monkeypatch.setattr(world.engine.store, "load_running", load_none)
        monkeypatch.setattr(world.engine.store, "load", load_ended)
        await world.engine._loop.restart(shards.change_shards)

        assert [stop.key for stop in world.worker.stops] == [key]
        assert world.engine._loop.scheduler.find_job(job.id) is None


async def test_what_waits_for_the_change_and_has_a_home_elsewhere_then_is_refused(
    path: Path,
) -> None:
    async with sharing(path) as (world, shards):
        keys = [f"k{n}" for n in range(100)]
        home = {shard_of(key) == 0: key for key in keys}
        shards.given = {*range(1, SHARDS)}
        world.engine._loop.is_sure = shards.is_sure
        asked: dict[bool, asyncio.Future[object]] = {}

        move = shards.change_shards

        async def change() -> None:
            await move()
            for is_here, key in home.items():
                submit = world.submit(delay_us=MINUTE, unique=Unique(key))
                asked[is_here] = asyncio.ensure_future(submit)
            await asyncio.wait(asked.values(), timeout=0)

        assert world.engine.ownership is not None
        world.engine.ownership._cluster.change_shards = change  # type: ignore[method-assign]
        shards.on_due()
        assert world.engine.ownership._task is not None
        await world.engine.ownership._task

        with pytest.raises(Unavailable, match="has just moved"):
            await asked[False]
        assert await asked[True]


def test_a_command_without_a_text_may_be_carried_out_by_any_server() -> None:
    assert texts_of(object()) == ()


async def test_a_server_adopts_what_workers_run_for_a_dead_one(path: Path) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit(task="remote")
        started = LeaseKey(job.id, 1, world.engine.health().epoch)  # which was not durable
        shards.given = {31}
        shards.has_inherited = True
        shards.on_due()
        ownership = world.engine.ownership
        assert ownership is not None
        assert ownership._task is not None
        await ownership._task

        spec = WorkerSpec("a", 1, frozenset({"remote"}))
        request = make_poll(spec=spec, running=frozenset({started}))
        response = await world.engine.sessions.work(request)

        assert response.revoked == []
        assert (await world.engine.get(job.id)).state is State.RUNNING


@pytest.mark.parametrize("fails", [False, True])
async def test_a_request_whose_home_moves_while_it_waits_makes_no_job(
    path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async with sharing(path) as (world, shards):
        home = shard_of("one")
        submits: list[asyncio.Task[Answers]] = []

        async def change() -> None:
            submit: Callable[..., Coroutine[Any, Any, Answers]] = world.engine.submit
            submits.append(asyncio.create_task(submit([spec()], home_shards=[home])))
            await one_pass()
            await one_pass()  # its turn puts it off
            shards.mine.discard(home)
            shards.given.clear()
            if fails:
                raise StoreError("the session has ended")

        monkeypatch.setattr(shards, "change_shards", change)
        shards.given = {home}
        shards.on_due()

        while not submits:
            await one_pass()
        with pytest.raises(Unavailable, match="has just moved"):
            await submits[0]
        await world.engine.flush()
        assert not world.worker.leases


async def test_a_job_of_a_limited_queue_that_the_server_makes_itself_needs_no_certain_shard(
    path: Path,
) -> None:
    async with sharing(path) as (world, shards):
        await world.engine.change_queue("one", concurrency=1)
        shards.mine.discard(shard_of("one"))
        submits: list[asyncio.Future[object]] = []

        async def change() -> None:
            submits.append(asyncio.ensure_future(world.submit(queue="one")))
            await one_pass()

        await world.engine._loop.restart(change)

        assert await submits[0]


async def test_a_request_whose_home_has_moved_makes_no_job(path: Path) -> None:
    async with sharing(path) as (world, shards):
        shards.mine.discard(7)

        with pytest.raises(Unavailable, match="has just moved"):
            await world.engine.submit([spec()], home_shards=[7])
        answers: Answers = await world.engine.submit([spec()], home_shards=[8])

        assert isinstance(answers[0], Accepted)


# Waits for jobs that move.


class Moved(NamedTuple):
    world: World
    shards: Shards
    jobs: list[Job]
    waits: list[asyncio.Task[Job]]


@asynccontextmanager
async def waiting_for_moved(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Moved]:
    """Begin to wait for two jobs, the first of which then moves to another server."""
    monkeypatch.setattr("schedo.engine.moved_waits.LOOK_S", 0.001)
    async with sharing(path) as (world, shards):
        jobs = [await world.submit(delay_us=MINUTE) for _ in range(2)]
        waits = [asyncio.create_task(world.engine.wait(job.id, 60.0)) for job in jobs]
        await one_pass()
        shards.moved, shards.mine = {jobs[0].id}, {0}
        await world.engine._loop.restart(shards.change_shards)
        try:
            yield Moved(world, shards, jobs, waits)
        finally:
            for wait in waits:
                wait.cancel()


async def end_elsewhere(moved: Moved, monkeypatch: pytest.MonkeyPatch, job: Job | None) -> None:
    """End the first job; the store has this record of it then."""

    async def get_job(job_id: int) -> Job | None:
        assert job_id == moved.jobs[0].id
        return job

    monkeypatch.setattr(moved.world.engine.store, "get_job", get_job)
    moved.shards.ended = [each.id for each in moved.jobs]


async def test_a_wait_ends_when_another_server_has_ended_the_job(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting_for_moved(path, monkeypatch) as moved:
        moved.shards.failures = [StoreError("the database is away")]
        ended = moved.jobs[0].copy()
        ended.state = State.COMPLETED

        await end_elsewhere(moved, monkeypatch, ended)

        assert (await moved.waits[0]).state is State.COMPLETED
        assert not moved.waits[1].done()


async def test_a_wait_for_a_job_that_another_server_has_ended_and_not_kept_finds_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting_for_moved(path, monkeypatch) as moved:
        await moved.world.engine.flush()
        monkeypatch.setattr(moved.world.engine._loop.scheduler, "find_job", lambda _: None)

        await end_elsewhere(moved, monkeypatch, None)

        with pytest.raises(NotFound):
            await moved.waits[0]
