"""An engine whose server shares the store: it follows its shards, and starts nothing in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from schedo.core.changes import Changes
from schedo.core.limits import MINUTE, SECOND
from schedo.core.loads import Load, LoadJob
from schedo.core.model import Job, LeaseKey, Unique
from schedo.core.shards import SHARDS, shard_of
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.engine.homes import texts_of
from schedo.engine.ownership import Ownership
from schedo.engine.standstill import DOUBT_CAUSES
from schedo.errors import StoreError, Unavailable
from schedo.store.base import Snapshot, Store
from schedo.testing.clock import VirtualClock
from tests.core.remote_site import make_poll
from tests.engine.world import World, running
from tests.passes import one_pass
from tests.stores import make_store


class Shards:
    """A cluster whose shards the test moves by hand."""

    def __init__(self) -> None:
        self.on_due: Callable[[], None] = lambda: None
        self.is_known = True
        self.beat_error: StoreError | None = None
        self.mine = {*range(SHARDS)}
        self.given: set[int] = set()
        self.has_inherited = False
        self.moved: set[int] = set()  # the jobs of shard 1; the others are in shard 0
        self.ended: list[int] = []  # at the other servers
        self.failures: list[Exception] = []
        self.left: list[list[tuple[int, str]]] = []  # minutes of servers that are gone

    async def shards_of_jobs(self, job_ids: Sequence[int]) -> Mapping[int, int]:
        return {job_id: 1 if job_id in self.moved else 0 for job_id in job_ids}

    async def find_ended(self, job_ids: Sequence[int]) -> Sequence[int]:
        if self.failures:
            raise self.failures.pop()
        return [job_id for job_id in job_ids if job_id in self.ended]

    async def adopt_minutes(self) -> list[tuple[int, str]]:
        if self.failures:
            raise self.failures.pop()
        return self.left.pop() if self.left else []

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
        world.engine.ownership.start()
        yield world, shards


async def test_a_server_in_doubt_starts_nothing_and_goes_on_when_it_is_sure(path: Path) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit(delay_us=SECOND)
        shards.is_known = False
        await world.run_until(world.clock.now() + MINUTE)

        assert not world.worker.leases
        assert DOUBT_CAUSES in world.engine.health().reasons
        shards.is_known = True
        shards.on_due()
        await world.engine.flush()

        assert [lease.key.job_id for lease in world.worker.leases] == [job.id]
        assert DOUBT_CAUSES not in world.engine.health().reasons


async def test_a_start_that_fails_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store()
    engine = Engine(store, VirtualClock(0))
    engine.cluster = Shards()  # type: ignore[assignment]

    async def fail() -> Snapshot:
        raise StoreError("the database is away")

    monkeypatch.setattr(store, "open", fail)
    before = asyncio.all_tasks()

    with pytest.raises(StoreError, match="the database is away"):
        await engine.start()

    assert asyncio.all_tasks() == before


async def test_a_unique_job_whose_key_is_elsewhere_is_refused(path: Path) -> None:
    async with sharing(path) as (world, shards):
        shards.mine = {*range(SHARDS)} - {shard_of("key")}

        with pytest.raises(Unavailable, match="has just moved"):
            await world.submit(unique=Unique("key"))

        assert (await world.submit(unique=Unique("other"))).id


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


@pytest.mark.parametrize("worker", ["process-1", "remote"])
@pytest.mark.parametrize(("epochs", "attempts"), [(0, 1), (1, 1), (1, -1)])
async def test_of_an_attempt_and_a_later_one_of_another_server_the_first_is_stopped(
    path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int, attempts: int, worker: str
) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit()
        read_running_apart(world.engine.store, monkeypatch)
        key, load_running = world.worker.leases[0].key, world.engine.store.load_running

        async def load_later_attempt(after: int, limit: int) -> list[Job]:
            found = await load_running(after, limit)
            for each in found:
                each.epoch += epochs
                each.attempt += attempts  # fewer, if those of this server were not durable
                each.worker = worker
            return found

        monkeypatch.setattr(world.engine.store, "load_running", load_later_attempt)
        await world.engine._loop.restart(shards.change_shards)

        assert [stop.key for stop in world.worker.stops] == [key]
        found, goes_on = await world.engine.get(job.id), worker == "remote"
        state = State.RUNNING if goes_on else State.QUEUED
        assert (found.state, found.attempt) == (state, key.attempt + attempts)


@pytest.mark.parametrize("state", [State.CANCELLED, State.RETRYING])
async def test_a_start_that_is_not_durable_counts_less_than_what_another_server_has_done(
    path: Path, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit()
        read_running_apart(world.engine.store, monkeypatch)
        key = world.worker.leases[0].key
        stored = await world.engine.get(job.id)
        stored.state, stored.attempt, stored.epoch = state, key.attempt - 1, key.epoch + 1
        if stored.is_final:
            stored.epoch, stored.ended_at = 0, world.clock.now()  # it was not started there

        async def load_none(after: int, limit: int) -> list[Job]:
            return []

        async def load_stored(wanted: Load) -> object:
            assert wanted == LoadJob(job.id)
            return stored

        monkeypatch.setattr(world.engine.store, "load_running", load_none)
        monkeypatch.setattr(world.engine.store, "load", load_stored)
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
