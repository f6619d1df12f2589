"""Immediate placement: an invocation starts or fails at once, and is never queued."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Lost
from schedo.core.limits import SECOND
from schedo.core.model import Failure, JobSpec, Options
from schedo.core.requirements import Condition, Requirements
from schedo.core.states import State
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import IllegalTransition, NoCapacity, NoReservation, Unsatisfiable
from tests.engine.world import T0, World, running

EU = Requirements(labels=(Condition("region", "=", ("eu",)),))


def spec(requirements: Requirements | None = None, **fields: Any) -> JobSpec:
    return JobSpec(
        "increment",
        b'{"n":1}',
        options=Options(requirements=requirements, at_most_once=True),
        **fields,
    )


class Remote:
    """A remote worker that polls, and accepts or rejects its offers."""

    def __init__(self, world: World, name: str, *, slots: int = 1, region: str = "eu") -> None:
        self.engine = world.engine
        self.sessions = world.engine.sessions
        self.spec = WorkerSpec(
            name,
            slots,
            frozenset({"increment"}),
            labels={"region": region},
            resources={"cpu": 4_000},
        )
        self.waiting: asyncio.Task[PollResponse] | None = None

    async def wait(self, **fields: Any) -> None:
        """Begin a poll."""
        request = PollRequest(
            self.spec.id, "s", self.spec, wait_s=30.0, supports_offers=True, **fields
        )
        self.waiting = asyncio.create_task(self.sessions.work(request))
        await self.engine.flush()

    async def response(self) -> PollResponse:
        """Return the response of the request that waits."""
        assert self.waiting is not None
        return await asyncio.wait_for(self.waiting, 5)

    async def report_in(self, **fields: Any) -> PollResponse:
        return await self.sessions.work(
            PollRequest(self.spec.id, "s", self.spec, max_leases=0, **fields)
        )

    async def end(self, lease: Lease, outcome: Any = None) -> None:
        await self.report_in(reports=[AttemptResult(lease.key, outcome or Completed(b'{"n":2}'))])


async def polling_workers(world: World, *names: str, **fields: Any) -> list[Remote]:
    remotes = [Remote(world, name, **fields) for name in names]
    for remote in remotes:
        await remote.wait()
    await world.engine.flush()
    return remotes


async def running_jobs(world: World, count: int) -> None:
    """Return once this number of attempts is decided, durable or not."""
    line = world.engine._loop.scheduler._jobs.ready_queues.queue_state("default")
    while line.running < count:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.001)


async def test_an_invocation_runs_at_once_and_returns_its_result(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        call = asyncio.create_task(world.engine.invoke(spec(EU), 1, 5.0))

        response = await remote.response()
        [lease] = response.leases
        assert response.offers == {lease.key}
        await remote.end(lease)

        [job] = await call
        assert (job.state, job.result, job.worker) == (State.COMPLETED, b'{"n":2}', "a")
        assert job.trigger == "invoke"


async def test_an_invocation_is_durable_before_it_is_dispatched(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        world.store.hold()
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        await running_jobs(world, 1)

        assert remote.waiting is not None
        assert not remote.waiting.done()
        world.store.release()
        [lease] = (await remote.response()).leases
        await remote.end(lease)
        await call


async def test_without_a_free_slot_an_invocation_fails_at_once(path: Path) -> None:
    async with running(path) as world:
        await polling_workers(world, "a")
        first = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        await running_jobs(world, 1)

        with pytest.raises(NoCapacity) as refusal:
            await world.engine.invoke(spec(), 1, 5.0)

        assert refusal.value.considered == 2, "the one of this test, and the one of the world"
        assert refusal.value.rejected == {"task": 1, "no_slots": 1}
        first.cancel()


async def test_a_task_that_no_worker_runs_is_unsatisfiable(path: Path) -> None:
    async with running(path) as world:
        await polling_workers(world, "a", region="us")

        with pytest.raises(Unsatisfiable):
            await world.engine.invoke(spec(EU), 1, 0.0)
        with pytest.raises(Unsatisfiable):
            await world.engine.invoke(spec(Requirements(resources=(("cpu", 5_000),))), 1, 0.0)


async def test_a_rejected_offer_goes_to_the_next_worker(path: Path) -> None:
    async with running(path) as world:
        remotes = {remote.spec.id: remote for remote in await polling_workers(world, "a", "b")}
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        done, _ = await asyncio.wait(
            [r.waiting for r in remotes.values() if r.waiting], return_when=asyncio.FIRST_COMPLETED
        )
        [lease] = done.pop().result().leases
        first = remotes.pop(lease.worker)
        [second] = remotes.values()

        await first.report_in(reject=[(lease.key, "I am busy")])
        [again] = (await second.response()).leases
        await second.end(again)

        [job] = await call
        assert (job.state, job.worker, job.attempt) == (State.COMPLETED, second.spec.id, 2)


async def test_an_offer_that_all_workers_reject_is_no_capacity(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        [lease] = (await remote.response()).leases

        await remote.report_in(reject=[(lease.key, "I am busy")])

        with pytest.raises(NoCapacity, match="I am busy") as refusal:
            await call
        assert (refusal.value.considered, refusal.value.rejected) == (1, {"rejected": 1})


async def test_without_a_wait_an_invocation_returns_when_it_is_accepted(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 0.0))
        [lease] = (await remote.response()).leases
        assert not call.done()

        await remote.report_in(accept=[lease.key])

        [job] = await asyncio.wait_for(call, 5)
        assert (job.state, job.worker) == (State.RUNNING, "a")


async def test_an_unanswered_offer_goes_to_the_next_worker(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        await remote.response()

        await world.run_until(T0 + SECOND)

        with pytest.raises(NoCapacity, match="did not answer within"):
            await asyncio.wait_for(call, 5)


async def test_a_late_acceptance_is_revoked(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        [lease] = (await remote.response()).leases
        await world.run_until(T0 + SECOND)
        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 5)

        response = await remote.report_in(accept=[lease.key], running=frozenset({lease.key}))

        assert response.revoked == [lease.key]


async def test_the_jobs_of_a_gang_start_together(path: Path) -> None:
    async with running(path) as world:
        a, b = await polling_workers(world, "a", "b")

        with pytest.raises(Unsatisfiable, match="can take at most 2 jobs at once, not 3"):
            await world.engine.invoke(spec(), 3, 5.0)
        call = asyncio.create_task(world.engine.invoke(spec(), 2, 5.0))
        leases = [(await remote.response()).leases[0] for remote in (a, b)]
        first = asyncio.create_task(a.report_in(accept=[leases[0].key]))
        await world.engine.flush()
        assert not first.done(), "it may not begin before the other one is taken"
        assert (await b.report_in(accept=[leases[1].key])).revoked == []
        assert (await first).revoked == []
        for remote, lease in zip((a, b), leases, strict=True):
            await remote.end(lease)

        assert [job.state for job in await call] == [State.COMPLETED] * 2


async def test_a_gang_without_slots_for_all_starts_no_job(path: Path) -> None:
    async with running(path) as world:
        await polling_workers(world, "a", "b")
        first = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        await running_jobs(world, 1)

        with pytest.raises(NoCapacity) as refusal:
            await world.engine.invoke(spec(), 2, 5.0)

        assert refusal.value.rejected == {"task": 1, "no_slots": 1, "too_few": 1}
        first.cancel()


async def test_invocations_alternate_between_equally_free_workers(path: Path) -> None:
    async with running(path) as world:
        remotes = {
            remote.spec.id: remote for remote in await polling_workers(world, "a", "b", slots=4)
        }
        names = []
        for _ in range(4):
            call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
            done, _ = await asyncio.wait(
                [r.waiting for r in remotes.values() if r.waiting],
                return_when=asyncio.FIRST_COMPLETED,
            )
            [lease] = done.pop().result().leases
            remote = remotes[lease.worker]
            await remote.end(lease)
            await remote.wait()
            await call
            names.append(lease.worker)

        assert names in (["a", "b", "a", "b"], ["b", "a", "b", "a"])


@pytest.mark.parametrize(
    "outcome", [Failed(Failure("ValueError", "no")), Lost("it died")], ids=["raises", "dies"]
)
async def test_a_failed_invocation_is_not_tried_again(path: Path, outcome: Any) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        [lease] = (await remote.response()).leases

        await remote.end(lease, outcome)

        [job] = await call
        assert (job.state, job.attempt) == (State.FAILED, 1)


async def test_an_invoked_job_cannot_be_retried(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        call = asyncio.create_task(world.engine.invoke(spec(), 1, 5.0))
        [lease] = (await remote.response()).leases
        await remote.end(lease, Failed(Failure("ValueError", "no")))
        [job] = await call

        with pytest.raises(IllegalTransition, match="invoke it again"):
            await world.engine.retry(job.id)


# Reservations.


async def test_a_reserved_slot_is_held_for_the_owner_of_the_nonce(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        reservation = await world.engine.reserve("increment", "default", EU, 1, 10.0)
        assert reservation.workers == ["a"]
        with pytest.raises(NoCapacity):
            await world.engine.invoke(spec(), 1, 0.0)
        with pytest.raises(NoReservation):
            await world.engine.commit_reservation(reservation.id, "guess", spec(), 0.0)

        call = asyncio.create_task(
            world.engine.commit_reservation(reservation.id, reservation.nonce, spec(), 5.0)
        )
        [lease] = (await remote.response()).leases
        await remote.end(lease)

        assert [job.state for job in await call] == [State.COMPLETED]
        with pytest.raises(NoReservation):
            await world.engine.commit_reservation(reservation.id, reservation.nonce, spec(), 0.0)


async def test_a_commit_that_is_refused_does_not_use_up_the_reservation(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        reservation = await world.engine.reserve("increment", "default", EU, 1, 10.0)

        for _ in range(2):
            with pytest.raises(Unsatisfiable):
                await world.engine.commit_reservation(
                    reservation.id, reservation.nonce, JobSpec("decrement", b"{}"), 5.0
                )
        with pytest.raises(NoCapacity):  # the slot is still held
            await world.engine.invoke(spec(), 1, 0.0)
        call = asyncio.create_task(
            world.engine.commit_reservation(reservation.id, reservation.nonce, spec(), 5.0)
        )
        [lease] = (await remote.response()).leases
        await remote.end(lease)

        assert [job.state for job in await call] == [State.COMPLETED]


async def test_one_of_two_concurrent_commits_gets_the_reservation(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        reservation = await world.engine.reserve("increment", "default", None, 1, 10.0)

        calls = [
            asyncio.create_task(
                world.engine.commit_reservation(reservation.id, reservation.nonce, spec(), 5.0)
            )
            for _ in range(2)
        ]
        [lease] = (await remote.response()).leases
        await remote.end(lease)
        answers = await asyncio.gather(*calls, return_exceptions=True)

        assert [isinstance(answer, NoReservation) for answer in answers] == [False, True]


async def test_a_released_or_expired_reservation_frees_its_slot(path: Path) -> None:
    async with running(path) as world:
        [remote] = await polling_workers(world, "a")
        reservation = await world.engine.reserve("increment", "default", None, 1, 10.0)
        await world.engine.release_reservation(reservation.id, reservation.nonce)
        await world.engine.flush()
        await remote.wait()
        await world.engine.flush()
        reservation = await world.engine.reserve("increment", "default", None, 1, 1.0)
        await world.run_until(T0 + SECOND)
        await remote.wait()
        await world.engine.flush()

        reservation = await world.engine.reserve("increment", "default", None, 1, 10.0)
        assert reservation.workers == ["a"]


async def test_a_reservation_ends_with_its_worker(path: Path) -> None:
    async with running(path) as world:
        await polling_workers(world, "a")
        reservation = await world.engine.reserve("increment", "default", None, 1, 10.0)

        world.engine.detach("a", "it left")
        await world.engine.flush()

        with pytest.raises(NoReservation, match="is gone"):
            await world.engine.commit_reservation(reservation.id, reservation.nonce, spec(), 0.0)
