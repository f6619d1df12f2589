"""The metrics of a running engine: which starts count, and from which instant."""

from __future__ import annotations

import asyncio
from pathlib import Path

from schedo.core.leases import Failed
from schedo.core.limits import HOUR, MINUTE, SECOND
from schedo.core.model import Failure, Rule, ScheduleSpec
from schedo.core.states import State
from schedo.engine.metrics import Histogram
from tests.engine.world import T0, THRICE, Answers, HandWorker, World, running, spec

MS = 1_000


def seen(histogram: Histogram) -> tuple[int, int]:
    """How many observations, and their sum."""
    return sum(histogram.counts), histogram.total


def delay(world: World, queue: str = "default") -> tuple[int, int]:
    return seen(world.engine.metrics.queue(queue).start_delay)


def timers(world: World) -> tuple[int, int]:
    return seen(world.engine.metrics.start_lateness["timer"])


def submits(world: World) -> tuple[int, int]:
    return seen(world.engine.metrics.start_lateness["submit"])


async def test_the_lateness_of_a_start_counts_from_its_due_time(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE, queue="mail")

        world.clock.stall(MINUTE + 3 * MS)

        assert len(world.worker.leases) == 1
        assert delay(world, "mail") == timers(world) == (1, 3 * MS)


async def test_the_lateness_of_a_job_due_at_once_includes_its_commit(path: Path) -> None:
    async with running(path) as world:
        world.store.hold()
        submit = asyncio.create_task(world.submit())
        await world.store.wait_held()
        world.clock.stall(7 * MS)
        world.store.release()
        await submit

        assert delay(world) == submits(world) == (1, 7 * MS)
        assert seen(world.engine.metrics.queue("default").commit_wait) == (1, 7 * MS)


async def test_waiting_for_a_slot_is_delay_and_not_lateness(path: Path) -> None:
    async with running(path) as world:
        for _ in range(11):
            await world.submit(delay_us=MINUTE)
        await world.run_until(T0 + MINUTE)
        assert (len(world.worker.leases), timers(world)) == (10, (10, 0))

        world.clock.stall(5 * SECOND)
        world.worker.end()
        await world.engine.flush()

        assert delay(world) == (11, 5 * SECOND)
        assert timers(world) == (10, 0)


async def test_waiting_in_a_paused_queue_is_delay_and_not_lateness(path: Path) -> None:
    async with running(path) as world:
        await world.engine.pause_queue("default")
        await world.submit(delay_us=MINUTE)
        await world.run_until(T0 + HOUR)

        await world.engine.resume_queue("default")
        await world.engine.flush()

        assert delay(world) == (1, HOUR - MINUTE)
        assert timers(world) == (0, 0)


async def test_the_lateness_of_a_retry_counts_from_its_own_due_time(path: Path) -> None:
    async with running(path) as world:
        await world.submit(retry=THRICE)
        world.worker.end(Failed(Failure("boom", "it broke")))
        await world.engine.flush()

        world.clock.stall(MINUTE + 2 * MS)

        assert (submits(world), timers(world)) == ((1, 0), (1, 2 * MS))


async def test_the_lateness_of_a_run_counts_from_its_instant(path: Path) -> None:
    async with running(path) as world:
        rule = Rule(every_us=MINUTE, start_at=T0 + MINUTE)
        await world.engine.put_schedule(ScheduleSpec("s", rule, spec()))

        world.clock.stall(MINUTE + 4 * MS)
        await world.engine.flush()
        await world.engine.flush()

        assert timers(world) == (1, 4 * MS)
        assert world.engine.metrics.decisions["fired"] == 1


async def test_the_lateness_of_a_job_due_before_the_server_started_is_not_counted(
    path: Path,
) -> None:
    async with running(path) as before:
        await before.submit(delay_us=MINUTE)

    async with running(path, now=T0 + HOUR) as world:
        await world.engine.flush()

        assert len(world.worker.leases) == 1
        assert world.engine.metrics.starts == 1
        assert delay(world) == (0, 0)


async def test_an_attempt_after_a_lost_worker_is_not_late(path: Path) -> None:
    async with running(path) as world:
        await world.submit()
        world.clock.stall(MINUTE)

        world.engine.detach("process-1", "it died")
        second = HandWorker(world.engine, "second")
        second.attach()
        await world.engine.flush()

        assert len(second.leases) == 1
        assert delay(world) == submits(world) == (1, 0)
        assert world.engine.metrics.unsuccessful["lost"] == 1


async def test_the_lateness_of_a_job_due_in_the_past_counts_from_its_submit(path: Path) -> None:
    async with running(path) as world:
        await world.submit(run_at=T0 - HOUR)

        assert delay(world) == (1, 0)


async def test_the_lateness_of_an_at_most_once_job_includes_the_commit_of_its_start(
    path: Path,
) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE, at_most_once=True)
        world.store.hold()
        world.clock.stall(MINUTE)
        await world.store.wait_held()
        assert world.engine.metrics.starts == 0

        world.clock.stall(9 * MS)
        world.store.release()
        await world.engine.flush()

        assert world.engine.metrics.starts == 1
        assert delay(world) == (1, 9 * MS)
        assert timers(world) == (0, 0)


async def test_ended_jobs_are_counted_by_their_outcome(path: Path) -> None:
    async with running(path) as world:
        await world.submit()
        world.worker.end()
        await world.submit()
        world.worker.end(Failed(Failure("boom", "it broke"), retryable=False))
        job = await world.submit(delay_us=MINUTE)
        await world.engine.cancel(job.id)

        assert world.engine.metrics.ended == {
            State.COMPLETED: 1,
            State.FAILED: 1,
            State.CANCELLED: 1,
            State.EXPIRED: 0,
        }


async def test_a_commit_is_measured_with_its_jobs(path: Path) -> None:
    async with running(path) as world:
        before = seen(world.engine.metrics.commit_jobs)[1]
        world.store.hold()
        submit: asyncio.Task[Answers] = asyncio.create_task(
            world.engine.submit([spec(delay_us=HOUR)] * 30)
        )
        await world.store.wait_held()
        world.clock.stall(20 * MS)
        world.store.release()
        await submit

        assert world.engine.metrics.commit_time.total == 20 * MS
        assert seen(world.engine.metrics.commit_jobs)[1] == before + 30


async def test_a_late_turn_is_measured_as_lag_of_the_loop(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)
        before = seen(world.engine.metrics.loop_lag)[1]

        world.clock.stall(MINUTE + 30 * MS)

        assert seen(world.engine.metrics.loop_lag)[1] == before + 30 * MS
        assert world.engine.health().lag_us == 30 * MS


async def test_a_clock_step_is_no_lag(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)

        world.clock.step(HOUR)

        assert world.engine.metrics.loop_lag.total == 0
        assert world.engine.health().ready
