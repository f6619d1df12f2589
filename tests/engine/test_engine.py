"""The engine's guarantees: durable before runnable, a reply after the commit, one recovery path."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import Failed, Snoozed, Stopped, StopReason
from schedo.core.limits import MILLISECOND, MINUTE, PAYLOAD_INLINE_BYTES_MAX, SECOND
from schedo.core.loads import Load
from schedo.core.model import Failure, Job, Unique
from schedo.core.states import State
from schedo.engine.call_results import Accepted
from schedo.engine.failures import OutcomeUnknown
from schedo.errors import DuplicateKey, IllegalTransition, NotFound, StoreError, Unavailable
from tests.engine.world import T0, THRICE, Answers, leased, recovered, running, spec
from tests.passes import one_pass


async def test_submit_returns_only_after_its_commit(path: Path) -> None:
    async with running(path) as world:
        world.store.hold()
        submit = asyncio.create_task(world.submit())
        done, _ = await asyncio.wait([submit], timeout=0.05)

        assert not done
        world.store.release()
        assert (await submit).state is State.QUEUED


async def test_what_a_command_must_load_is_asked_for_with_the_commit_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        ended = await world.submit()
        world.worker.end()
        await world.engine.wait(ended.id, 5)
        await world.engine.flush()
        load, asked = world.store.load, asyncio.Event()

        async def note(wanted: Load) -> Any:
            asked.set()
            return await load(wanted)

        monkeypatch.setattr(world.store, "load", note)
        world.store.hold()
        submit = asyncio.create_task(world.submit())
        cancel = asyncio.create_task(world.engine.cancel(ended.id))
        await world.store.wait_held()
        await asyncio.wait_for(asked.wait(), 5)
        assert not submit.done()

        world.store.release()
        with pytest.raises(IllegalTransition):
            await cancel
        assert (await submit).state is State.QUEUED


async def test_a_failed_commit_drops_what_was_loaded_behind_it(path: Path) -> None:
    async with running(path) as world:
        ended = await world.submit()
        world.worker.end(Failed(Failure("boom", "it broke"), retryable=False))
        await world.engine.wait(ended.id, 5)
        await world.engine.flush()
        world.store.hold()
        submit = asyncio.create_task(world.submit())
        retry = asyncio.create_task(world.engine.retry(ended.id))
        await world.store.wait_held()
        world.store.fail_next(StoreError("it flickered"))
        world.store.release()

        results = await asyncio.gather(submit, retry, return_exceptions=True)

        assert [type(each) for each in results] == [OutcomeUnknown, OutcomeUnknown]
        await recovered(world)
        assert (await world.engine.retry(ended.id)).state is State.QUEUED


async def test_a_job_does_not_start_before_it_is_durable(path: Path) -> None:
    async with running(path) as world:
        world.store.hold()
        submit = asyncio.create_task(world.submit())
        await asyncio.wait([submit, asyncio.create_task(leased(world))], timeout=0.05)
        assert not world.worker.leases

        world.store.release()
        await submit
        await world.engine.flush()

        assert len(world.worker.leases) == 1


async def test_a_started_job_does_not_wait_for_its_start_to_be_durable(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        world.store.hold()

        world.clock.stall(MINUTE)
        await asyncio.wait([asyncio.create_task(leased(world))], timeout=5)

        assert world.worker.leases[0].key.job_id == job.id


async def test_a_job_that_runs_at_most_once_starts_only_when_its_start_is_durable(
    path: Path,
) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE, at_most_once=True)
        world.store.hold()
        world.clock.stall(MINUTE)
        await asyncio.wait([asyncio.create_task(leased(world))], timeout=0.05)
        assert not world.worker.leases

        world.store.release()
        await world.engine.flush()

        assert len(world.worker.leases) == 1


async def test_a_job_runs_when_it_is_due_and_not_before(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)

        await world.run_until(T0 + MINUTE - 1)
        assert not world.worker.leases

        await world.run_until(T0 + MINUTE)
        assert len(world.worker.leases) == 1


async def test_a_completed_job_keeps_its_result_and_its_times(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        await world.run_until(T0 + MINUTE)

        world.worker.end()
        ended = await world.engine.wait(job.id, 5)

        assert ended.state is State.COMPLETED
        assert ended.result == b'"done"'
        assert (ended.due_at, ended.started_at, ended.ended_at) == (T0 + MINUTE,) * 3


async def test_a_failed_attempt_is_tried_again_after_its_backoff(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(retry=THRICE)
        world.worker.end(Failed(Failure("boom", "it broke")))
        await world.engine.flush()
        assert (await world.engine.get(job.id)).state is State.RETRYING

        await world.run_until(T0 + MINUTE)

        assert world.worker.leases[0].key.attempt == 2


async def test_the_last_failure_ends_the_job(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(retry=THRICE)
        for minute in range(3):
            await world.run_until(T0 + minute * MINUTE)
            world.worker.end(Failed(Failure("boom", "it broke")))
        ended = await world.engine.wait(job.id, 5)

        assert ended.state is State.FAILED
        assert (ended.attempt, ended.failures) == (3, 3)
        assert [a.outcome for a in await world.store.list_attempts(job.id)] == ["failed"] * 3


async def test_a_snooze_uses_no_attempt_up(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.worker.end(Snoozed(MINUTE))
        await world.run_until(T0 + MINUTE)

        world.worker.end()
        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt, ended.failures) == (State.COMPLETED, 2, 0)


async def test_a_timeout_stops_the_attempt_and_counts_as_a_failure(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(timeout_us=SECOND)
        await world.run_until(T0 + SECOND)
        assert [stop.reason for stop in world.worker.stops] == [StopReason.TIMEOUT]

        world.worker.end(Stopped())
        await world.engine.flush()

        retrying = await world.engine.get(job.id)
        assert (retrying.state, retrying.failures) == (State.RETRYING, 1)
        assert retrying.failure is not None
        assert retrying.failure.message == "timed out after 1 s"


async def test_cancelling_a_running_job_stops_its_attempt(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        asked = await world.engine.cancel(job.id)
        assert (asked.state, asked.cancel_requested_at) == (State.RUNNING, T0)
        assert [stop.reason for stop in world.worker.stops] == [StopReason.CANCEL]

        world.worker.end(Stopped())

        assert (await world.engine.wait(job.id, 5)).state is State.CANCELLED


async def test_a_job_that_only_the_store_holds_can_be_cancelled(path: Path) -> None:
    async with running(path, window=2) as world:
        jobs = [await world.submit(delay_us=MINUTE + i) for i in range(20)]

        cancelled = await world.engine.cancel(jobs[19].id)
        again = await world.engine.cancel(jobs[19].id)

        assert cancelled.state is again.state is State.CANCELLED
        await world.run_until(T0 + 2 * MINUTE)
        while world.worker.leases:
            world.worker.end()
            await world.engine.flush()
        assert (await world.engine.get(jobs[18].id)).state is State.COMPLETED
        assert (await world.engine.get(jobs[19].id)).attempt == 0


async def test_jobs_beyond_the_capacity_of_an_index_all_run(path: Path) -> None:
    async with running(path, window=4) as world:
        specs = [spec(delay_us=(i * 7919) % 1000 * SECOND) for i in range(300)]
        await world.engine.submit(specs)

        ran: list[int] = []
        for second in range(0, 1001, 50):
            await world.run_until(T0 + second * SECOND)
            while world.worker.leases:
                ran.append(world.worker.end().key.job_id)
                await world.engine.flush()

        assert len(ran) == len(set(ran)) == 300


async def test_a_large_payload_waits_in_the_store_and_arrives_whole(path: Path) -> None:
    payload = b'"' + b"x" * (PAYLOAD_INLINE_BYTES_MAX + 1) + b'"'
    async with running(path) as world:
        job = await world.submit(payload=payload, delay_us=MINUTE)
        assert (await world.engine.get(job.id)).payload == payload

        await world.run_until(T0 + MINUTE)
        await asyncio.wait([asyncio.create_task(leased(world))], timeout=5)

        assert world.worker.leases[0].payload == payload


async def test_a_submit_with_a_unique_key_that_is_held_returns_the_first_job(path: Path) -> None:
    async with running(path, window=2) as world:
        first = await world.submit(delay_us=MINUTE, unique=Unique("k"))
        for i in range(10):  # push it out of memory
            await world.submit(delay_us=i)

        answers: Answers = await world.engine.submit([spec(unique=Unique("k"))])
        answer = answers[0]

        assert isinstance(answer, Accepted)
        assert (answer.job.id, answer.conflict) == (first.id, True)


async def test_a_duplicate_that_is_refused_fails_alone_in_its_batch(path: Path) -> None:
    async with running(path) as world:
        reject = Unique("k", on_conflict="reject")

        specs = [spec(unique=reject), spec(unique=reject), spec()]
        answers: Answers = await world.engine.submit(specs)

        assert [type(answer) for answer in answers] == [Accepted, DuplicateKey, Accepted]


async def test_an_unknown_job_is_not_found(path: Path) -> None:
    async with running(path) as world:
        for ask in (
            world.engine.get,
            world.engine.cancel,
            world.engine.retry,
            world.engine.run_now,
        ):
            with pytest.raises(NotFound):
                await ask(12345)


async def test_a_refused_command_changes_nothing(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        before = await world.engine.get(job.id)
        with pytest.raises(IllegalTransition):
            await world.engine.retry(job.id)

        assert await world.engine.get(job.id) == before


async def test_waiting_for_a_job_ends_when_the_time_is_up(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)

        assert (await world.engine.wait(job.id, 0.01)).state is State.SCHEDULED


async def test_a_wait_whose_time_is_up_returns_no_end_that_is_not_durable(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        waiting = asyncio.create_task(world.engine.wait(job.id, 0.02))
        await one_pass()
        world.store.hold()
        world.worker.end()
        await world.store.wait_held()
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()

        world.store.fail_next(StoreError("it flickered"))
        world.store.release()

        with pytest.raises(StoreError):
            await waiting


async def test_waiting_for_an_ended_job_returns_at_once(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.worker.end()
        await world.engine.flush()

        assert (await world.engine.wait(job.id, 60)).state is State.COMPLETED


async def test_a_wait_ends_when_the_engine_stops(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        waits = [asyncio.create_task(world.engine.wait(job.id, 60)) for _ in range(2)]
        await one_pass()
        with world.engine.expect_end(job.id) as left:
            left.cancel()

            await world.engine.stop()

    for wait in waits:
        with pytest.raises(Unavailable, match="the server has stopped"):
            await wait


async def test_due_timers_run_before_long_commands(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=5 * MILLISECOND)
        started: list[int] = []

        def take_long(job: Job) -> int:
            started.append(len(world.worker.leases))
            world.clock.armed_at = None  # the alarm does not fire within a turn
            world.clock.stall(10 * MILLISECOND)
            return job.id

        later = spec(delay_us=MINUTE)
        submits = [
            asyncio.create_task(world.engine.submit([later], view=take_long)) for _ in range(3)
        ]
        await asyncio.gather(*submits)

        # A turn begins with the commands, so the second one came before what was due meanwhile.
        assert started == [0, 0, 1]
