"""Parts of the operations of other servers: a job is changed once, however often a part comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.bulk_commands import Changed, ChangeForOther
from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.changes import Changes
from schedo.core.job_filter import JobFilter
from schedo.core.leases import Failed
from schedo.core.limits import HOUR
from schedo.core.model import Failure
from schedo.core.states import State
from tests.engine.test_bulk_runner import begin, ended, submit
from tests.engine.world import T0, THRICE, World, running
from tests.passes import one_pass

FAILED = Failed(Failure("boom", "it broke"))


def make_operation(world: World) -> BulkOperation:
    """Return an operation of another server that runs all jobs early."""
    number = world.engine._loop.scheduler.last_id + 64
    return BulkOperation(
        id=number,
        action=BulkAction.RUN,
        which=JobFilter(states=BulkAction.RUN.states),
        created_at=T0,
        before=number,
        state=BulkState.RUNNING,
    )


async def test_a_part_that_comes_again_changes_no_job_again(path: Path) -> None:
    async with running(path) as world:
        job, other = await submit(world, 2, delay_us=HOUR, retry=THRICE)
        operation, parts = make_operation(world), world.engine.bulk.parts

        first = await parts.carry_out(ChangeForOther(operation, (job,), -7))
        world.worker.end(FAILED)
        await world.engine.flush()
        again = await parts.carry_out(ChangeForOther(operation, (job, other), -8))

        assert (first.done, first.missing) == (1, ())
        assert (again.done, again.skipped, again.missing) == (1, 0, (job,))
        found = await world.engine.get(job)
        assert (found.state, found.attempt) == (State.RETRYING, 1)


async def test_a_job_that_someone_has_retried_is_not_cancelled_again(path: Path) -> None:
    async with running(path) as world:
        (job,) = await submit(world, 1, delay_us=HOUR)
        which = JobFilter(states=BulkAction.CANCEL.states)
        operation = replace(make_operation(world), action=BulkAction.CANCEL, which=which)
        parts = world.engine.bulk.parts

        first = await parts.carry_out(ChangeForOther(operation, (job,), -7))
        await world.engine.retry(job)
        again = await parts.carry_out(ChangeForOther(operation, (job,), -8))

        assert (first.done, again) == (1, Changed(missing=(job,)))
        assert (await world.engine.get(job)).state is State.RUNNING


async def test_a_part_that_comes_again_waits_for_the_commit_of_the_first_one(path: Path) -> None:
    async with running(path) as world:
        (job,) = await submit(world, 1, delay_us=HOUR, retry=THRICE)
        operation, parts = make_operation(world), world.engine.bulk.parts
        world.store.hold()
        first = asyncio.create_task(parts.carry_out(ChangeForOther(operation, (job,), -7)))
        await world.store.wait_held()

        again = asyncio.create_task(parts.carry_out(ChangeForOther(operation, (job,), -8)))
        for _ in range(9):
            await one_pass()
        assert not again.done()
        world.store.release()

        assert ((await first).done, await again) == (1, Changed(missing=(job,)))


async def test_a_job_that_has_come_from_another_server_is_not_changed_again(path: Path) -> None:
    """The other one has changed it, and its response was lost."""
    async with running(path) as world:
        jobs = await submit(world, 3, delay_us=HOUR)
        await world.engine.pause_queue("default")
        await world.engine.bulk.stop()
        operation = await begin(world, BulkAction.RUN, task="work")
        before = JobBefore(jobs[0], T0, State.SCHEDULED, 0, T0 + HOUR)
        await world.engine.store.commit(Changes(steps=[BulkStep(operation.id, -7, (before,))]))
        world.engine.bulk.start()

        operation = await ended(world, operation.id)

        assert (operation.done, operation.skipped) == (3, 0)
        assert (await world.engine.get(jobs[0])).state is State.SCHEDULED
        step = await world.engine.store.load_bulk_step(operation.id, operation.id + 1)
        assert step is not None
        assert {each.id for each in step.jobs} == {*jobs}
        assert await world.engine.store.load_bulk_step(operation.id, 0) is None


async def test_what_an_earlier_step_has_left_out_stays_in_its_record(path: Path) -> None:
    """The history of the job finds it there, and not in a step of older jobs."""
    async with running(path) as world:
        older, newer = await submit(world, 2, delay_us=HOUR)
        operation = replace(make_operation(world), before=newer)
        before = JobBefore(newer, T0, State.SCHEDULED, 0, T0 + HOUR)
        await world.engine.store.commit(Changes(steps=[BulkStep(operation.id, -7, (before,))]))

        found = await world.engine.bulk._ask_others(operation, set(), (older, newer))

        assert found == ((older,), Changed())
