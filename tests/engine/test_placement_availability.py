"""Immediate placement on workers between two polls, without offers, or disconnected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schedo.core.leases import AttemptResult, Completed
from schedo.core.limits import SECOND
from schedo.core.model import JobSpec
from schedo.core.states import State
from schedo.errors import NoCapacity, Unsatisfiable
from tests.engine.test_placement import EU, polling_workers, running_jobs, spec
from tests.engine.test_worker_sessions import make_poll, poll_at_once
from tests.engine.world import T0, running


async def test_a_worker_between_two_polls_can_be_invoked(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a", slots=2)
        await world.engine.submit([JobSpec("increment", b"{}")])
        [queued] = (await remote.response()).leases  # and it has no open poll now

        call = asyncio.create_task(world.engine.invoke(spec(EU), 1, 5.0))
        await world.engine.flush()
        await remote.wait(running=frozenset({queued.key}))
        [lease] = (await remote.response()).leases
        await remote.end(lease)

        assert [job.state for job in await call] == [State.COMPLETED]


async def test_the_offer_of_a_worker_that_never_polls_again_times_out(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        reservation = await world.engine.reserve("increment", "default", None, 1, 20.0)
        assert remote.waiting is not None
        remote.waiting.cancel()  # its machine is gone

        call = asyncio.create_task(
            world.engine.commit_reservation(reservation.id, reservation.nonce, spec(), 0.0)
        )
        await running_jobs(world, 1)
        await world.run_until(T0 + SECOND)

        with pytest.raises(NoCapacity, match="did not answer within"):
            await asyncio.wait_for(call, 5)


async def test_a_worker_without_offers_accepts_by_polling(path: Path) -> None:
    async with running(path) as world:
        waiting = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0))
        )
        await world.engine.flush()
        call = asyncio.create_task(world.engine.invoke(JobSpec("resize", b"{}"), 1, 0.0))

        response = await asyncio.wait_for(waiting, 5)

        assert response.offers == set()
        [job] = await asyncio.wait_for(call, 5)
        assert (job.state, job.worker) == (State.RUNNING, "far")
        [lease] = response.leases
        await poll_at_once(world, max_leases=0, reports=[AttemptResult(lease.key, Completed())])
        assert (await world.engine.get(job.id)).state is State.COMPLETED


async def test_an_invocation_into_a_paused_or_full_queue_fails_with_no_capacity(path: Path) -> None:
    async with running(path) as world:
        await polling_workers(world, "a")
        await world.engine.change_queue("default", paused=True)
        with pytest.raises(NoCapacity, match="is paused"):
            await world.engine.invoke(spec(), 1, 0.0)

        await world.engine.change_queue("default", paused=False, concurrency=1)
        with pytest.raises(NoCapacity, match="is at its concurrency limit"):
            await world.engine.invoke(spec(), 2, 0.0)


async def test_a_task_of_a_disconnected_worker_is_no_capacity(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        assert remote.waiting is not None
        await remote.report_in(is_draining=True, running=frozenset())
        await world.engine.flush()

        with pytest.raises(NoCapacity, match="a worker that could is disconnected"):
            await world.engine.invoke(spec(EU), 1, 0.0)


async def test_shortly_after_a_restart_an_unknown_task_is_no_capacity(path: Path) -> None:
    async with running(path) as world:
        await polling_workers(world, "a")
    async with running(path) as world:
        with pytest.raises(NoCapacity, match="a worker that could is disconnected"):
            await world.engine.invoke(spec(EU), 1, 0.0)

        await world.run_until(T0 + 6 * SECOND)
        with pytest.raises(Unsatisfiable):
            await world.engine.invoke(spec(EU), 1, 0.0)


async def test_results_of_attempts_that_a_worker_never_had_are_refused_and_not_stored(
    path: Path,
) -> None:
    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        job = await world.submit(task="resize")
        [lease] = (await poll_at_once(world)).leases

        unknown = make_poll(
            "other", reports=[AttemptResult(lease.key._replace(attempt=9), Completed())]
        )
        response = await world.engine.sessions.work(unknown)

        assert len(response.refused) == 1
        assert await world.store.list_attempts(job.id) == []


async def test_the_reason_names_the_workers_that_are_cordoned(path: Path) -> None:
    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        await world.engine.sessions.cordon("far", True)
        job = await world.submit(task="resize")

        [why] = world.engine.why(await world.engine.get(job.id)).reasons

        assert why == "all workers that could run it are cordoned or draining: far"
