"""The engine follows changes of the clock while it runs and while no server runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schedo.clock import DRIFT_US, STEP_MIN_US
from schedo.core.leases import StopReason
from schedo.core.limits import DAY, HOUR, MINUTE, SECOND
from schedo.core.model import Job, JobSpec, Options, Overlap, Rule, ScheduleSpec
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.engine import loop
from schedo.errors import StoreFull
from schedo.store.sqlite.store import SqliteStore
from schedo.testing.clock import VirtualClock
from tests.core.remote_site import make_poll
from tests.engine.world import T0, World, leased, recovered, running
from tests.store.steps import all_jobs

STEPS = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])


def every(us: int) -> ScheduleSpec:
    return ScheduleSpec("s", Rule(every_us=us), JobSpec("work"), overlap=Overlap.ALLOW)


async def stopped_at(path: Path, now: int, **spec: object) -> Job:
    """Run a server that accepts a job at the instant, and stop it."""
    async with running(path, now=now) as world:
        return await world.submit(**spec)


async def followed(world: World) -> None:
    """Return when the engine has followed the clock and loaded the next entries."""
    for _ in range(4):
        await world.engine.flush()


async def started_by(world: World, at: int) -> bool:
    """Return whether the worker has a lease when the clock shows the instant."""
    await world.run_until(at)
    return bool(world.worker.leases)


@STEPS
@pytest.mark.parametrize("window", [2, 100])
async def test_a_delay_ends_on_time_when_the_clock_is_set(
    path: Path, step: int, window: int
) -> None:
    async with running(path, window=window) as world:
        for _ in range(10):
            await world.submit(delay_us=5 * MINUTE)
        await world.run_until(T0 + MINUTE)

        world.clock.step(step)
        await followed(world)

        assert not await started_by(world, T0 + step + 5 * MINUTE - 1)
        assert await started_by(world, T0 + step + 5 * MINUTE)


@STEPS
async def test_the_due_time_of_a_delayed_job_is_shown_by_the_current_clock(
    path: Path, step: int
) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)

        world.clock.step(step)
        await followed(world)

        assert (await world.engine.get(job.id)).due_at == T0 + MINUTE + step
        [listed] = await all_jobs(world.store)
        assert listed.due_at == T0 + MINUTE + step


@STEPS
async def test_an_interval_keeps_its_distance_when_the_clock_is_set(path: Path, step: int) -> None:
    async with running(path) as world:
        await world.engine.put_schedule(every(10 * SECOND))
        await world.run_until(T0 + 10 * SECOND)
        await world.engine.flush()
        before = len(world.worker.leases)

        world.clock.step(step)
        await followed(world)
        await world.run_until(T0 + step + 30 * SECOND)
        await world.engine.flush()

        assert len(world.worker.leases) == before + 2


@STEPS
async def test_a_clock_step_while_no_server_runs_is_noticed_at_the_start(
    path: Path, step: int
) -> None:
    await stopped_at(path, T0, delay_us=5 * MINUTE)
    world = World(path, now=T0 + MINUTE + step)
    world.clock.base_us = step
    await world.engine.start()
    world.worker.attach()

    assert not await started_by(world, T0 + step + 5 * MINUTE - 1)
    assert await started_by(world, T0 + step + 5 * MINUTE)
    await world.engine.stop()


@STEPS
async def test_the_expiry_of_a_job_that_ran_follows_a_clock_that_was_set_while_no_server_ran(
    path: Path, step: int
) -> None:
    async with running(path) as world:
        job = await world.submit(expires_in_us=HOUR)  # it starts at once
    world = World(path, now=T0 + MINUTE + step)
    world.clock.base_us = step

    await world.engine.start()

    assert (await world.engine.get(job.id)).expires_at == T0 + HOUR + step
    await world.engine.stop()


async def test_a_clock_that_drifts_is_no_step_at_the_next_start(path: Path) -> None:
    drift = STEP_MIN_US - DRIFT_US
    async with running(path) as world:
        for _ in range(3):
            world.clock.base_us += drift  # as if the time since the boot were as much slower
            await world.submit(delay_us=HOUR)

    world = World(path, now=T0 + MINUTE)
    world.clock.base_us = 3 * drift
    await world.engine.start()
    await world.engine.stop()

    assert (await _offset_us(path)) == 0


async def _offset_us(path: Path) -> int:
    store = SqliteStore(path)
    try:
        return (await store.open()).clock.offset_us
    finally:
        await store.close()


async def test_a_clock_that_starts_in_the_past_postpones_no_delay(path: Path) -> None:
    await stopped_at(path, T0, delay_us=5 * MINUTE)
    long_ago = T0 - 2_000 * DAY
    world = World(path, now=long_ago)
    world.clock = world.engine.clock = _rebooted(world, long_ago)
    await world.engine.start()
    world.worker.attach()

    assert round(world.engine.health().clock_behind_us / DAY) == 2_000
    assert not await started_by(world, long_ago + 5 * MINUTE - 1)
    assert await started_by(world, long_ago + 5 * MINUTE)
    await world.engine.stop()


async def test_downtime_on_a_machine_that_was_restarted_counts_by_the_clock(path: Path) -> None:
    await stopped_at(path, T0, delay_us=5 * MINUTE)
    world = World(path, now=T0 + HOUR)
    world.clock = world.engine.clock = _rebooted(world, T0 + HOUR)
    await world.engine.start()
    world.worker.attach()

    assert await started_by(world, T0 + HOUR)
    await world.engine.stop()


def _rebooted(world: World, now: int) -> VirtualClock:
    """Give the world the clock of a rebooted machine."""
    world.clock.boot += 1
    return world.clock


@STEPS
async def test_a_clock_step_that_cannot_be_saved_is_retried(path: Path, step: int) -> None:
    async with running(path) as world:
        await world.submit(delay_us=5 * MINUTE)
        world.store.fail_next(StoreFull("no room"))

        world.clock.step(step)
        await recovered(world)

        assert world.clock.now() == T0 + step
        assert not await started_by(world, T0 + step + 5 * MINUTE - 1)
        assert await started_by(world, T0 + step + 5 * MINUTE)


@STEPS
async def test_a_lease_that_has_not_arrived_is_sent_again_although_a_clock_step_cannot_be_saved(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(loop, "RECOVERY_PAUSE_S", 0.01)
    async with running(path) as world:
        await world.submit(task="remote")
        poll = make_poll(spec=WorkerSpec("a", 1, frozenset({"remote"})), max_leases=1)
        [lease] = (await world.engine.sessions.work(poll)).leases
        await world.engine.flush()
        world.store.fail_next(StoreFull("no room"), StoreFull("no room"))  # in the recovery, too
        world.clock.step(step)
        await recovered(world, 2)

        [again] = (await world.engine.sessions.work(poll._replace(running=frozenset()))).leases

        assert (again.key.job_id, again.key.attempt) == (lease.key.job_id, 2)


@STEPS
async def test_replies_that_wait_for_a_commit_survive_a_clock_step(path: Path, step: int) -> None:
    async with running(path) as world:
        world.store.hold()
        submit = asyncio.create_task(world.submit())
        await world.store.wait_held()
        later = asyncio.create_task(world.submit(delay_us=MINUTE))

        world.clock.step(step)
        world.store.release()

        await submit
        job = await later
        await leased(world)
        await world.engine.flush()
        assert (await world.engine.get(job.id)).state is State.SCHEDULED
        assert await world.engine.get(job.id) is not None


async def test_health_reports_a_clock_set_back_until_it_has_caught_up(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=DAY)
        assert world.engine.health().clock_behind_us == 0

        world.clock.step(-HOUR)
        await world.engine.flush()

        health = world.engine.health()
        assert (health.ready, health.clock_behind_us) == (True, HOUR)
        assert (await world.engine.gauges()).clock_behind_us == HOUR
        await world.run_until(T0)
        assert world.engine.health().clock_behind_us == 0


async def test_counts_are_made_again_after_a_clock_step_back(path: Path) -> None:
    async with running(path) as world:
        await world.engine.gauges()
        world.clock.step(-HOUR)
        await world.engine.flush()
        await world.submit(delay_us=DAY)

        await world.run_until(T0 - HOUR + MINUTE)

        gauges = await world.engine.gauges()
        assert gauges.queues["default"].waiting[State.SCHEDULED] == 1


async def test_a_clock_step_makes_no_job_due_before_it_is_saved(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(run_at=T0 + MINUTE)
        world.store.hold()
        later = asyncio.ensure_future(world.submit(run_at=T0 + HOUR))
        await world.store.wait_held()

        world.clock.step(-HOUR)
        world.clock.stall(2 * MINUTE)
        world.store.release()
        await later
        await followed(world)

        assert (await world.engine.get(job.id)).state is State.SCHEDULED
        assert not world.worker.leases
        assert await started_by(world, T0 + MINUTE)


async def test_a_timeout_holds_while_a_clock_step_waits_for_a_commit(path: Path) -> None:
    async with running(path) as world:
        await world.submit(options=Options(timeout_us=MINUTE))
        world.store.hold()
        later = asyncio.ensure_future(world.submit(run_at=T0 + HOUR))
        await world.store.wait_held()

        world.clock.step(-HOUR)
        world.clock.stall(MINUTE)

        assert [stop.reason for stop in world.worker.stops] == [StopReason.TIMEOUT]
        world.store.release()
        await later
