"""A recovery keeps each attempt that a worker holds, once, and only those.

Each of these was found by the simulation (tests/sim).
"""

import asyncio
from pathlib import Path

import pytest

from schedo.core.changes import Changes
from schedo.core.leases import AttemptResult, Completed, Failed, Released
from schedo.core.limits import MINUTE, PAYLOAD_INLINE_BYTES_MAX, SECOND
from schedo.core.model import Failure, JobSpec, Overlap, Retry, Rule, ScheduleSpec, Trigger
from schedo.core.states import State
from schedo.engine.failures import OutcomeUnknown
from schedo.errors import StoreError
from schedo.store.base import Retention
from tests.engine.world import T0, THRICE, World, leased, recovered, running
from tests.factories import make_job, make_schedule
from tests.passes import one_pass
from tests.store.steps import all_jobs
from tests.stores import make_store

FLICKER = StoreError("it flickered")
BOOM = Failed(Failure("boom", "it broke"))
AT_ONCE = Retry(max_attempts=3, backoff="fixed", initial_us=0, jitter=0.0)


async def _start_with_commits_held(world: World) -> None:
    """Let the job that is due in a minute be leased, while nothing becomes durable."""
    world.store.hold()
    world.clock.stall(MINUTE)
    await asyncio.wait_for(leased(world), 5)


async def test_an_attempt_that_was_lost_before_it_was_durable_keeps_its_number(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)
        await _start_with_commits_held(world)
        first = world.worker.leases.pop()

        world.engine.detach("process-1", "it hung up")
        world.store.fail_next(FLICKER)
        world.store.release()
        await recovered(world)
        world.worker.attach()
        await asyncio.wait_for(leased(world), 5)

        assert (first.key.attempt, world.worker.leases[0].key.attempt) == (1, 2)


async def test_an_unsent_lease_is_dispatched_again_when_the_worker_reconnects(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE, at_most_once=True)
        world.store.hold()
        world.clock.stall(MINUTE)
        await world.store.wait_held()

        world.engine.detach("process-1", "it hung up")
        world.worker.attach()
        world.store.release()
        await world.engine.flush()

        [lease] = world.worker.leases
        found = await world.engine.get(job.id)
        assert (lease.key.attempt, found.attempt, found.losses) == (2, 2, 0)


async def test_a_start_whose_commit_failed_is_made_again(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE, at_most_once=True)
        world.store.fail_next(FLICKER)
        world.clock.stall(MINUTE)
        await recovered(world)
        await asyncio.wait_for(leased(world), 5)

        world.worker.end()
        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt) == (State.COMPLETED, 1)


async def test_a_repeated_attempt_whose_start_was_not_stored_has_its_own_instant_of_start(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit(timeout_us=10 * SECOND)
        await world.run_until(T0 + 6 * SECOND)
        world.store.fail_next(FLICKER)

        world.worker.end(Released())
        await recovered(world)

        found = await world.engine.get(job.id)
        assert (found.attempt, found.picked_at) == (2, T0 + 6 * SECOND)


async def test_a_job_whose_payload_cannot_be_read_starts_when_it_can(path: Path) -> None:
    payload = b'"' + b"x" * PAYLOAD_INLINE_BYTES_MAX + b'"'
    async with running(path) as world:
        await world.submit(payload=payload, delay_us=MINUTE)
        world.store.fail_loads(FLICKER)
        await world.run_until(T0 + MINUTE)
        await world.engine.flush()

        await world.run_until(T0 + MINUTE + SECOND)
        await asyncio.wait_for(leased(world), 5)

        assert world.worker.leases[0].payload == payload


async def test_a_call_that_waits_for_a_load_gets_the_error_of_the_store(path: Path) -> None:
    async with running(path, window=2) as world:
        jobs = [await world.submit(delay_us=MINUTE + i) for i in range(20)]
        world.store.hold()
        calls = [
            asyncio.create_task(world.submit()),
            asyncio.create_task(world.engine.cancel(jobs[19].id)),
        ]
        await world.store.wait_held()

        world.store.fail_next(FLICKER)
        world.store.release()

        answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
        assert [type(answer) for answer in answers] == [OutcomeUnknown, OutcomeUnknown]


async def test_a_result_survives_its_worker_and_a_failed_commit(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        await _start_with_commits_held(world)

        world.worker.end()
        world.engine.detach("process-1", "it hung up")
        world.store.fail_next(FLICKER)
        world.store.release()
        await recovered(world)

        ended = await world.engine.wait(job.id, 5)
        assert (ended.state, ended.attempt, ended.losses) == (State.COMPLETED, 1, 0)


async def test_a_result_that_comes_during_a_recovery_survives_its_worker(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.store.fail_next(FLICKER)
        lost = asyncio.create_task(world.submit())
        while not world.store.failures:
            await one_pass()
        world.store.hold()
        await world.store.wait_held()  # the commit of the recovery

        world.worker.end()
        world.engine.detach("process-1", "it hung up")
        await one_pass()
        world.store.release()
        await recovered(world)
        await world.engine.flush()

        found = await world.engine.get(job.id)
        assert (found.state, found.attempt, found.losses) == (State.COMPLETED, 1, 0)
        with pytest.raises(StoreError):
            await lost


async def test_a_durable_result_is_not_counted_again_after_a_failed_commit(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(retry=THRICE)
        world.store.fail_after(FLICKER)
        world.worker.end(BOOM)
        await recovered(world)

        again = await world.engine.get(job.id)

        assert (again.state, again.failures) == (State.RETRYING, 1)


async def test_failures_count_though_their_commit_and_that_of_the_next_start_has_failed(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit(retry=AT_ONCE)
        world.store.hold()
        for _ in range(2):
            world.worker.end(BOOM)
            await asyncio.wait_for(leased(world), 5)
        world.store.fail_next(FLICKER)
        world.store.release()
        await recovered(world)

        world.worker.end(BOOM)
        await world.engine.flush()

        ended = await world.engine.get(job.id)
        assert (ended.state, ended.attempt, ended.failures) == (State.FAILED, 3, 3)


async def test_of_two_results_the_first_one_counts_even_after_a_failed_commit(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.store.fail_next(FLICKER)
        lease = world.worker.end(Completed(b"1"))
        world.engine.report(AttemptResult(lease.key, BOOM))
        await recovered(world)

        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.result) == (State.COMPLETED, b"1")


async def test_the_result_of_a_lost_attempt_is_stale_even_after_a_failed_commit(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(at_most_once=True)
        lease = world.worker.leases.pop()
        world.store.fail_next(FLICKER)

        world.engine.detach("process-1", "it hung up")
        world.engine.report(AttemptResult(lease.key, Completed(b"1")))
        await recovered(world)

        ended = await world.engine.wait(job.id, 5)
        assert (ended.state, ended.losses) == (State.FAILED, 1)


async def test_attempt_numbers_continue_after_two_attempts_that_a_failed_commit_lost(
    path: Path,
) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)
        await _start_with_commits_held(world)
        world.worker.end(Released())
        await asyncio.wait_for(leased(world), 5)
        second = world.worker.leases.pop()

        world.engine.detach("process-1", "it hung up")
        world.store.fail_next(FLICKER)
        world.store.release()
        await recovered(world)
        world.worker.attach()
        await asyncio.wait_for(leased(world), 5)

        assert (second.key.attempt, world.worker.leases[0].key.attempt) == (2, 3)


async def test_the_id_of_a_pruned_job_is_not_reused(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.worker.end()
        await world.engine.flush()
        await world.store.prune(T0, Retention(0, 0, 0, 0), 10)
        world.clock.step(-MINUTE)
        await world.engine.flush()
        world.store.fail_next(FLICKER)
        with pytest.raises(StoreError):
            await world.submit()
        await recovered(world)

        assert (await world.submit()).id > job.id


async def test_a_replaced_run_is_cancelled_even_if_the_store_fails_in_between(path: Path) -> None:
    async with running(path, now=T0 + 1, window=2) as world:
        world.engine.detach("process-1", "nobody works")
        await world.engine.submit([JobSpec("work", priority=9) for _ in range(20)])
        await world.engine.put_schedule(
            ScheduleSpec(
                name="s",
                rule=Rule(every_us=MINUTE),
                job=JobSpec("work"),
                overlap=Overlap.CANCEL_OTHER,
            )
        )
        await world.run_until(T0 + MINUTE)

        world.store.fail_loads(FLICKER)  # the first run is on disk only, behind the others
        world.clock.stall(MINUTE)
        await recovered(world)
        await world.engine.flush()
        await world.engine.flush()

        jobs = await all_jobs(world.store, state="cancelled")
        assert [job.scheduled_for for job in jobs] == [T0 + MINUTE]


async def test_a_blocked_run_about_to_start_is_not_replaced_by_a_later_one(
    path: Path,
) -> None:
    spec = ScheduleSpec("s", Rule(every_us=MINUTE), JobSpec("work"), overlap=Overlap.BUFFER_ONE)
    schedule = make_schedule(spec=spec, evaluated_through=T0, next_fire_at=T0 + MINUTE)
    first, second = (
        make_job(
            id=number,
            task="work",
            state=State.BLOCKED,
            schedule_id=schedule.id,
            scheduled_for=T0 + number,
            trigger=Trigger.SCHEDULE,
        )
        for number in (1, 2)
    )
    store = make_store(path)
    await store.open()
    await store.commit(Changes(jobs={1: first, 2: second}, schedules={schedule.id: schedule}))
    await store.close()

    async with running(path) as world:
        await asyncio.wait_for(leased(world), 5)
        ran = [world.worker.end().key.job_id]
        await world.engine.flush()
        await asyncio.wait_for(leased(world), 5)
        ran.append(world.worker.end().key.job_id)

        assert ran == [1, 2]
