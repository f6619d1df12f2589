"""Workers on other machines: what a request brings and gives, and when a worker is lost."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Released, StopReason
from schedo.core.model import Failure, Job, LeaseKey
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.worker_messages import PollRequest, PollResponse, Progress
from schedo.errors import NotFound, WorkerReplaced
from tests.engine.world import World, running

TASKS = frozenset({"resize"})


def ask(worker: str = "far", *, slots: int = 2, **fields: Any) -> PollRequest:
    spec = WorkerSpec(worker, slots, TASKS, labels={"region": "eu"})
    return PollRequest(worker, **{"session": "s1", "spec": spec, "max_leases": 0, **fields})


def done(lease: Lease) -> AttemptResult:
    return AttemptResult(lease.key, Completed(b'"big"'))


async def hire(world: World, *, max_leases: int | None = None, **fields: Any) -> PollResponse:
    """Ask for work without waiting."""
    return await world.engine.sessions.work(ask(max_leases=max_leases, **fields))


async def leased(world: World, **fields: Any) -> tuple[Job, Lease]:
    """Submit a job and let the worker have it."""
    await hire(world, max_leases=0)
    job = await world.submit(task="resize", **fields)
    given = await hire(world)
    [lease] = given.leases
    return job, lease


async def test_a_worker_gets_what_it_asks_for_and_its_result_is_durable_at_the_answer(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        assert (lease.task, lease.worker) == ("resize", "far")

        await hire(world, max_leases=0, reports=[done(lease)])

        stored = await world.store.get_job(job.id)
        assert (stored.state, stored.result) == (State.COMPLETED, b'"big"')


async def test_nothing_is_given_to_a_worker_that_does_not_ask(path: Path) -> None:
    async with running(path) as world:
        await hire(world, max_leases=0)
        job = await world.submit(task="resize")

        assert (await world.engine.get(job.id)).state is State.QUEUED
        why = world.engine.why(await world.engine.get(job.id))
        assert why == "no worker that could run it is polling now: far"


async def test_a_request_that_waits_is_answered_by_the_next_job(path: Path) -> None:
    async with running(path) as world:
        waiting = asyncio.create_task(world.engine.sessions.work(ask(max_leases=1, wait_s=30.0)))
        await world.engine.flush()

        await world.submit(task="resize")
        await world.submit(task="resize")

        given = await asyncio.wait_for(waiting, 5)
        assert len(given.leases) == 1, "it asked for one"


async def test_one_request_asks_at_a_time(path: Path) -> None:
    async with running(path) as world:
        first = asyncio.create_task(world.engine.sessions.work(ask(max_leases=1, wait_s=30.0)))
        await world.engine.flush()
        second = asyncio.create_task(world.engine.sessions.work(ask(max_leases=1, wait_s=30.0)))

        assert (await asyncio.wait_for(first, 5)).leases == []
        await world.submit(task="resize")
        assert len((await asyncio.wait_for(second, 5)).leases) == 1


async def test_a_result_request_leaves_the_waiting_one_alone(path: Path) -> None:
    async with running(path) as world:
        _, lease = await leased(world)
        waiting = asyncio.create_task(
            world.engine.sessions.work(
                ask(max_leases=1, wait_s=30.0, running=frozenset({lease.key}))
            )
        )
        await world.engine.flush()

        await hire(world, max_leases=0, reports=[done(lease)])
        assert not waiting.done()
        await world.submit(task="resize")

        assert len((await asyncio.wait_for(waiting, 5)).leases) == 1


async def test_a_result_sent_twice_is_harmless(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        given = [await hire(world, max_leases=0, reports=[done(lease)]) for _ in range(2)]

        assert [each.refused for each in given] == [[], []]
        assert await world.store.list_attempts(job.id) == []


async def test_a_second_result_that_contradicts_the_first_is_refused_and_kept_once(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        failed = AttemptResult(lease.key, Failed(Failure("ValueError", "no")))

        given = [
            await hire(world, max_leases=0, reports=reports)
            for reports in ([done(lease), failed], [failed], [done(lease)])
        ]

        refused = [[key for key, _ in each.refused] for each in given]
        assert refused == [[lease.key], [lease.key], []]
        assert (await world.engine.get(job.id)).state is State.COMPLETED
        assert [each.outcome for each in await world.store.list_attempts(job.id)] == ["stale"]


async def test_a_result_of_an_attempt_that_is_not_held_is_refused_and_kept(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        await hire(world, max_leases=0, session="s2")  # started anew, without it
        await world.engine.flush()

        given = await hire(world, max_leases=0, session="s2", reports=[done(lease)])

        assert [key for key, _ in given.refused] == [lease.key]
        outcomes = [each.outcome for each in await world.store.list_attempts(job.id)]
        assert outcomes == ["lost", "stale"]


async def test_nobody_ends_the_attempt_of_another_worker(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        given = await world.engine.sessions.work(ask("other", reports=[done(lease)]))

        assert [key for key, _ in given.refused] == [lease.key]
        assert (await world.engine.get(job.id)).state is State.RUNNING


async def test_a_lease_that_never_arrived_goes_to_somebody_else_uncounted(path: Path) -> None:
    async with running(path) as world:
        job, _ = await leased(world)

        given = await hire(world, running=frozenset())

        [again] = given.leases
        assert (again.key.job_id, again.key.attempt) == (job.id, 2)
        found = await world.engine.get(job.id)
        assert (found.failures, found.losses) == (0, 0)


async def test_a_heartbeat_beside_an_answer_that_is_on_its_way_takes_nothing_back(
    path: Path,
) -> None:
    async with running(path) as world:
        job, _ = await leased(world)

        await hire(world, max_leases=0, running=frozenset())

        assert (await world.engine.get(job.id)).attempt == 1


async def test_what_a_worker_runs_and_does_not_hold_is_disowned(path: Path) -> None:
    async with running(path) as world:
        foreign = LeaseKey(77, 1, 1)

        given = await hire(world, running=frozenset({foreign}))

        assert given.revoked == [foreign]


async def test_a_worker_that_comes_back_keeps_its_attempts(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        waiting = asyncio.create_task(
            world.engine.sessions.work(
                ask(max_leases=1, wait_s=30.0, running=frozenset({lease.key}))
            )
        )
        await world.engine.flush()
        waiting.cancel()  # its connection broke
        with contextlib.suppress(asyncio.CancelledError):
            await waiting

        given = await hire(world, running=frozenset({lease.key}))

        assert given.revoked == []
        assert (await world.engine.get(job.id)).attempt == 1


async def test_what_the_answer_would_have_held_goes_back_when_its_reader_is_gone(
    path: Path,
) -> None:
    async with running(path) as world:
        waiting = asyncio.create_task(world.engine.sessions.work(ask(max_leases=1, wait_s=30.0)))
        await world.engine.flush()
        session = world.engine.sessions._sessions["far"]
        started = session.start

        def start(lease: Lease) -> None:
            started(lease)
            waiting.cancel()  # it hangs up at this moment

        session.start = start  # type: ignore[method-assign]
        job = await world.submit(task="resize")
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await world.engine.flush()

        found = await world.engine.get(job.id)
        assert (found.state, found.failures, found.losses) == (State.QUEUED, 0, 0)


async def test_a_stop_is_told_until_the_attempt_ends(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        await world.engine.cancel(job.id)

        for _ in range(2):
            given = await hire(world, max_leases=0, running=frozenset({lease.key}))
            assert [(stop.key, stop.reason) for stop in given.stops] == [
                (lease.key, StopReason.CANCEL)
            ]
        await hire(world, max_leases=0, reports=[AttemptResult(lease.key, Released())])
        assert (await hire(world, max_leases=0)).stops == []
        assert (await world.engine.get(job.id)).state is State.CANCELLED


async def test_a_stop_wakes_a_waiting_request_once(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        keys = frozenset({lease.key})
        waiting = asyncio.create_task(
            world.engine.sessions.work(ask(max_leases=1, wait_s=30.0, running=keys))
        )
        await world.engine.flush()

        await world.engine.cancel(job.id)
        assert len((await asyncio.wait_for(waiting, 5)).stops) == 1

        again = asyncio.create_task(
            world.engine.sessions.work(ask(max_leases=1, wait_s=30.0, running=keys))
        )
        await world.engine.flush()
        assert not again.done(), "a worker must not turn in circles while it stops"
        again.cancel()


async def test_progress_is_readable_while_the_attempt_runs(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        await hire(world, max_leases=0, progress=[Progress(lease.key, 40.0, "half of it")])
        [line] = world.engine.sessions.progress_of(job.id)
        assert (line.progress.percent, line.progress.message) == (40.0, "half of it")

        await hire(world, max_leases=0, reports=[done(lease)])
        assert world.engine.sessions.progress_of(job.id) == []


async def test_a_server_that_starts_again_waits_for_the_worker_of_a_running_attempt(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        await world.engine.flush()
    async with running(path) as world:
        assert (await world.engine.get(job.id)).state is State.RUNNING

        given = await hire(world, running=frozenset({lease.key}))
        assert given.revoked == []
        await hire(world, max_leases=0, reports=[done(lease)])

        found = await world.engine.get(job.id)
        assert (found.state, found.attempt, found.losses) == (State.COMPLETED, 1, 0)


async def test_after_a_restart_a_result_alone_is_taken_too(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        await world.engine.flush()
    async with running(path) as world:
        given = await hire(world, max_leases=0, reports=[done(lease)])

        assert given.refused == []
        assert (await world.engine.get(job.id)).state is State.COMPLETED


async def test_a_silent_worker_is_lost_with_what_it_held(path: Path) -> None:
    async with running(path) as world:
        await hire(world, max_leases=0)
        job = await world.submit(task="resize")
        given = await hire(world, session_timeout_s=0.01)
        [lease] = given.leases

        ended = await world.engine.wait(job.id, 0.2)

        assert (ended.state, ended.losses) == (State.QUEUED, 1)
        assert world.engine.sessions.get("far").state == "disconnected"
        given = await hire(world, running=frozenset({lease.key}))
        assert given.revoked == [lease.key]


async def test_a_worker_that_has_drained_is_gone_at_once(path: Path) -> None:
    async with running(path) as world:
        _, lease = await leased(world)

        await hire(world, is_draining=True, running=frozenset({lease.key}))
        assert world.engine.sessions.get("far").state == "draining"
        await hire(world, is_draining=True, reports=[done(lease)])

        assert world.engine.sessions.get("far").state == "disconnected"


async def test_a_process_whose_name_was_taken_over_is_told_so(path: Path) -> None:
    async with running(path) as world:
        waiting = asyncio.create_task(world.engine.sessions.work(ask(max_leases=1, wait_s=30.0)))
        await world.engine.flush()

        await hire(world, max_leases=0, session="s2")

        with pytest.raises(WorkerReplaced):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(WorkerReplaced):
            await hire(world, max_leases=0, session="s1")
        await hire(world, max_leases=0, session="s2")


async def test_people_see_a_worker_and_can_cordon_and_drain_it(path: Path) -> None:
    async with running(path) as world:
        await hire(world)
        sessions = world.engine.sessions

        seen = sessions.get("far")
        assert (seen.kind, seen.state, seen.slots, seen.running) == ("remote", "active", 2, 0)
        assert {each.name: each.kind for each in sessions.list()}["far"] == "remote"
        assert sessions.cordon("far", True).state == "cordoned"
        await world.submit(task="resize")
        assert (await hire(world)).leases == []
        sessions.cordon("far", False)
        assert len((await hire(world)).leases) == 1
        sessions.drain("far")
        assert (await hire(world, max_leases=0)).drain
        with pytest.raises(NotFound):
            sessions.get("nobody")
