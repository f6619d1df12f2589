"""Remote workers: the effects of each request, and when a worker is lost."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Released, StopReason
from schedo.core.limits import SECOND
from schedo.core.model import Failure, Job, LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.states import State
from schedo.core.worker_messages import PollRequest, PollResponse, Progress
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import NotFound, WorkerReplaced
from tests.engine.world import T0, World, running

TASKS = frozenset({"resize"})


def make_poll(worker: str = "far", *, slots: int = 2, **fields: Any) -> PollRequest:
    spec = WorkerSpec(worker, slots, TASKS, labels={"region": "eu"})
    return PollRequest(worker, **{"session": "s1", "spec": spec, "max_leases": 0, **fields})


def done(lease: Lease) -> AttemptResult:
    return AttemptResult(lease.key, Completed(b'"big"'))


async def poll_at_once(
    world: World, *, max_leases: int | None = None, **fields: Any
) -> PollResponse:
    """Poll without waiting."""
    return await world.engine.sessions.work(make_poll(max_leases=max_leases, **fields))


async def leased(world: World, **fields: Any) -> tuple[Job, Lease]:
    """Submit a job and let the worker poll for it."""
    await poll_at_once(world, max_leases=0)
    job = await world.submit(task="resize", **fields)
    response = await poll_at_once(world)
    [lease] = response.leases
    return job, lease


async def test_a_poll_returns_leases_and_the_response_confirms_durable_results(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        assert (lease.task, lease.worker) == ("resize", "far")

        await poll_at_once(world, max_leases=0, reports=[done(lease)])

        stored = await world.store.get_job(job.id)
        assert (stored.state, stored.result) == (State.COMPLETED, b'"big"')


async def test_a_worker_that_does_not_poll_gets_no_lease(path: Path) -> None:
    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        job = await world.submit(task="resize")

        assert (await world.engine.get(job.id)).state is State.QUEUED
        [why] = world.engine.why(await world.engine.get(job.id)).reasons
        assert why == "no worker that could run it is polling now: far"


async def test_the_next_job_completes_an_open_poll(path: Path) -> None:
    async with running(path) as world:
        waiting = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0))
        )
        await world.engine.flush()

        await world.submit(task="resize")
        await world.submit(task="resize")

        response = await asyncio.wait_for(waiting, 5)
        assert len(response.leases) == 1, "it polled for one"


async def test_a_new_poll_of_a_session_completes_the_open_one(path: Path) -> None:
    async with running(path) as world:
        first = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0))
        )
        await world.engine.flush()
        second = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0))
        )

        assert (await asyncio.wait_for(first, 5)).leases == []
        await world.submit(task="resize")
        assert len((await asyncio.wait_for(second, 5)).leases) == 1


async def test_a_report_leaves_the_open_poll_open(path: Path) -> None:
    async with running(path) as world:
        _, lease = await leased(world)
        waiting = asyncio.create_task(
            world.engine.sessions.work(
                make_poll(max_leases=1, wait_s=30.0, running=frozenset({lease.key}))
            )
        )
        await world.engine.flush()

        await poll_at_once(world, max_leases=0, reports=[done(lease)])
        assert not waiting.done()
        await world.submit(task="resize")

        assert len((await asyncio.wait_for(waiting, 5)).leases) == 1


async def test_a_result_that_is_sent_twice_counts_once(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        response = [
            await poll_at_once(world, max_leases=0, reports=[done(lease)]) for _ in range(2)
        ]

        assert [each.refused for each in response] == [[], []]
        assert await world.store.list_attempts(job.id) == []


async def test_a_second_result_that_contradicts_the_first_is_refused_and_stored_once(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        failed = AttemptResult(lease.key, Failed(Failure("ValueError", "no")))

        response = [
            await poll_at_once(world, max_leases=0, reports=reports)
            for reports in ([done(lease), failed], [failed], [done(lease)])
        ]

        refused = [[key for key, _ in each.refused] for each in response]
        assert refused == [[lease.key], [lease.key], []]
        assert (await world.engine.get(job.id)).state is State.COMPLETED
        assert [each.outcome for each in await world.store.list_attempts(job.id)] == ["stale"]


async def test_a_result_of_an_attempt_that_the_worker_does_not_hold_is_refused_and_stored(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        await poll_at_once(world, max_leases=0, session="s2")  # restarted, without the attempt
        await world.engine.flush()

        response = await poll_at_once(world, max_leases=0, session="s2", reports=[done(lease)])

        assert [key for key, _ in response.refused] == [lease.key]
        outcomes = [each.outcome for each in await world.store.list_attempts(job.id)]
        assert outcomes == ["lost", "stale"]


async def test_a_worker_cannot_end_the_attempt_of_another_one(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        response = await world.engine.sessions.work(make_poll("other", reports=[done(lease)]))

        assert [key for key, _ in response.refused] == [lease.key]
        assert (await world.engine.get(job.id)).state is State.RUNNING


async def test_a_lease_that_never_arrived_is_requeued_uncounted(path: Path) -> None:
    async with running(path) as world:
        job, _ = await leased(world)

        response = await poll_at_once(world, running=frozenset())

        [again] = response.leases
        assert (again.key.job_id, again.key.attempt) == (job.id, 2)
        found = await world.engine.get(job.id)
        assert (found.failures, found.losses) == (0, 0)


async def test_a_heartbeat_does_not_release_a_lease_that_is_on_its_way(
    path: Path,
) -> None:
    async with running(path) as world:
        job, _ = await leased(world)

        await poll_at_once(world, max_leases=0, running=frozenset())

        assert (await world.engine.get(job.id)).attempt == 1


async def test_an_attempt_that_a_worker_runs_without_a_lease_is_revoked(path: Path) -> None:
    async with running(path) as world:
        foreign = LeaseKey(77, 1, 1)

        response = await poll_at_once(world, running=frozenset({foreign}))

        assert response.revoked == [foreign]


async def test_a_worker_that_reconnects_keeps_its_attempts(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        waiting = asyncio.create_task(
            world.engine.sessions.work(
                make_poll(max_leases=1, wait_s=30.0, running=frozenset({lease.key}))
            )
        )
        await world.engine.flush()
        waiting.cancel()  # its connection broke
        with contextlib.suppress(asyncio.CancelledError):
            await waiting

        response = await poll_at_once(world, running=frozenset({lease.key}))

        assert response.revoked == []
        assert (await world.engine.get(job.id)).attempt == 1


async def test_the_leases_of_an_unsent_response_are_released(
    path: Path,
) -> None:
    async with running(path) as world:
        waiting = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0))
        )
        await world.engine.flush()
        polls = world.engine._loop.polls
        complete = polls.complete

        def complete_and_break(replies: Any) -> None:
            complete(replies)
            waiting.cancel()  # it hangs up at this moment

        polls.complete = complete_and_break  # type: ignore[method-assign]
        job = await world.submit(task="resize")
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await world.engine.flush()

        found = await world.engine.get(job.id)
        assert (found.state, found.failures, found.losses) == (State.QUEUED, 0, 0)


async def test_a_stop_request_is_repeated_until_the_attempt_ends(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        await world.engine.cancel(job.id)

        for _ in range(2):
            response = await poll_at_once(world, max_leases=0, running=frozenset({lease.key}))
            assert [(stop.key, stop.reason) for stop in response.stops] == [
                (lease.key, StopReason.CANCEL)
            ]
        await poll_at_once(world, max_leases=0, reports=[AttemptResult(lease.key, Released())])
        assert (await poll_at_once(world, max_leases=0)).stops == []
        assert (await world.engine.get(job.id)).state is State.CANCELLED


async def test_a_stop_request_completes_an_open_poll_once(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        keys = frozenset({lease.key})
        waiting = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0, running=keys))
        )
        await world.engine.flush()

        await world.engine.cancel(job.id)
        assert len((await asyncio.wait_for(waiting, 5)).stops) == 1

        again = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0, running=keys))
        )
        await world.engine.flush()
        assert not again.done(), "a worker must not turn in circles while it stops"
        again.cancel()


async def test_progress_is_readable_while_the_attempt_runs(path: Path) -> None:
    async with running(path) as world:
        job, lease = await leased(world)

        update = ProgressUpdate(40.0, "half of it")
        await poll_at_once(world, max_leases=0, progress=[Progress(lease.key, update)])
        [line] = world.engine.sessions.progress_of(job.id)
        assert line.progress.update == update

        await poll_at_once(world, max_leases=0, reports=[done(lease)])
        assert world.engine.sessions.progress_of(job.id) == []


async def test_a_restarted_server_waits_for_the_worker_of_a_running_attempt(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        await world.engine.flush()
    async with running(path) as world:
        assert (await world.engine.get(job.id)).state is State.RUNNING

        response = await poll_at_once(world, running=frozenset({lease.key}))
        assert response.revoked == []
        await poll_at_once(world, max_leases=0, reports=[done(lease)])

        found = await world.engine.get(job.id)
        assert (found.state, found.attempt, found.losses) == (State.COMPLETED, 1, 0)


async def test_after_a_restart_a_result_is_accepted_without_a_list_of_running_attempts(
    path: Path,
) -> None:
    async with running(path) as world:
        job, lease = await leased(world)
        await world.engine.flush()
    async with running(path) as world:
        response = await poll_at_once(world, max_leases=0, reports=[done(lease)])

        assert response.refused == []
        assert (await world.engine.get(job.id)).state is State.COMPLETED


async def test_a_silent_worker_is_lost_with_its_attempts(path: Path) -> None:
    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        job = await world.submit(task="resize")
        response = await poll_at_once(world, session_timeout_s=0.01)
        [lease] = response.leases

        await world.run_until(T0 + SECOND)

        ended = await world.engine.get(job.id)
        assert (ended.state, ended.losses) == (State.QUEUED, 1)
        assert world.engine.sessions.get("far").state == "disconnected"
        response = await poll_at_once(world, running=frozenset({lease.key}))
        assert response.revoked == [lease.key]


async def test_a_drained_worker_disconnects_at_once(path: Path) -> None:
    async with running(path) as world:
        _, lease = await leased(world)

        await poll_at_once(world, is_draining=True, running=frozenset({lease.key}))
        assert world.engine.sessions.get("far").state == "draining"
        await poll_at_once(world, is_draining=True, reports=[done(lease)])

        assert world.engine.sessions.get("far").state == "disconnected"


async def test_a_replaced_process_gets_an_error(path: Path) -> None:
    async with running(path) as world:
        waiting = asyncio.create_task(
            world.engine.sessions.work(make_poll(max_leases=1, wait_s=30.0))
        )
        await world.engine.flush()

        await poll_at_once(world, max_leases=0, session="s2")

        with pytest.raises(WorkerReplaced):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(WorkerReplaced):
            await poll_at_once(world, max_leases=0, session="s1")
        await poll_at_once(world, max_leases=0, session="s2")


async def test_an_operator_can_list_cordon_and_drain_a_worker(path: Path) -> None:
    async with running(path) as world:
        await poll_at_once(world)
        sessions = world.engine.sessions

        seen = sessions.get("far")
        assert (seen.kind, seen.state, seen.slots, seen.running) == ("remote", "active", 2, 0)
        assert {each.name: each.kind for each in sessions.list()}["far"] == "remote"
        assert (await sessions.cordon("far", True)).state == "cordoned"
        await world.submit(task="resize")
        assert (await poll_at_once(world)).leases == []
        await sessions.cordon("far", False)
        assert len((await poll_at_once(world)).leases) == 1
        await sessions.drain("far")
        assert (await poll_at_once(world, max_leases=0)).drain
        with pytest.raises(NotFound):
            sessions.get("nobody")
