"""A lease identifies one attempt forever: no result can end another attempt."""

import asyncio
from pathlib import Path

from schedo.core.leases import AttemptResult, Completed, Snoozed
from schedo.core.limits import MINUTE, PAYLOAD_INLINE_BYTES_MAX
from schedo.core.states import State
from schedo.errors import StoreError
from tests.engine.world import leased, recovered, running

FLICKER = StoreError("it flickered")
LARGE = b'"' + b"x" * PAYLOAD_INLINE_BYTES_MAX + b'"'


async def test_the_result_of_a_dropped_start_does_not_end_the_next_attempt(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit(payload=LARGE, delay_us=MINUTE)
        world.store.fail_loads(FLICKER)  # so attempt 1 is deferred
        world.store.fail_next(FLICKER, FLICKER)  # the start, and the one after the recovery
        world.clock.stall(MINUTE)
        await asyncio.wait_for(leased(world), 5)
        await recovered(world, failures=3)  # with that of the load
        await world.engine.flush()

        found = await world.engine.get(job.id)
        assert (found.state, found.key) == (State.RUNNING, world.worker.leases[0].key)
        world.worker.end()
        assert (await world.engine.wait(job.id, 5)).state is State.COMPLETED
        assert not world.worker.leases


async def test_a_reused_attempt_number_has_a_new_epoch_after_a_recovery(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE, at_most_once=True)
        before = world.engine.health().epoch
        world.store.fail_next(FLICKER)
        world.clock.stall(MINUTE)
        await recovered(world)
        await asyncio.wait_for(leased(world), 5)

        [lease] = world.worker.leases
        assert lease.key == (job.id, 1, before + 1)


async def test_a_worker_keeps_the_lease_it_has_over_a_recovery(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        before = world.worker.leases[0].key
        world.store.fail_next(FLICKER)
        await asyncio.gather(world.submit(), return_exceptions=True)
        await recovered(world)

        assert world.engine.health().epoch > before.epoch
        world.worker.end()
        ended = await world.engine.wait(job.id, 5)
        assert (ended.state, ended.key) == (State.COMPLETED, before)


async def test_a_refused_result_is_not_kept_for_a_recovery(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        lease = world.worker.leases[0]
        to_come = lease.key._replace(attempt=2)
        world.engine.report(AttemptResult(to_come, Snoozed(MINUTE)))
        world.engine.detach("process-1", "it hung up")
        world.store.fail_next(FLICKER)
        world.worker.attach()
        await recovered(world)
        await world.engine.flush()

        assert (await world.engine.get(job.id)).state is State.RUNNING
        assert world.engine._loop.dispatcher.results() == []


async def test_refused_results_are_not_kept_in_memory(path: Path) -> None:
    async with running(path) as world:
        await world.submit()
        key = world.worker.leases[0].key
        for attempt in range(2, 50):
            world.engine.report(AttemptResult(key._replace(attempt=attempt), Completed()))
        world.worker.end()
        await world.engine.flush()
        await world.engine.flush()

        dispatcher = world.engine._loop.dispatcher
        assert (dispatcher.latest(), dispatcher.results()) == ({}, [])
