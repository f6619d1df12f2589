"""An embedded server: jobs, results, failures, and jobs that survive a restart of the program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from schedo import JobCancelled, JobFailed, JobHandle, NewJob, Schedo, current_job
from schedo.engine.workers import Workers
from schedo.errors import DuplicateKey, Invalid, SchedoError, StoreError, StoreLocked, Unsatisfiable
from schedo.store import open_store
from tests.app.example import LONG_S, Example, Sum, add
from tests.passes import one_pass

if TYPE_CHECKING:
    from schedo.store.postgres.store import PostgresStore


async def test_a_result_has_the_annotated_type(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        job = await example.add.enqueue(2, b=3)

        assert await job.result() == Sum(5)
        assert await (await example.double.enqueue(4)).result() == 8
        assert (await job.status())["payload"] == {"a": 2, "b": 3}


async def test_arguments_that_do_not_match_make_no_job(example: Example) -> None:
    async with example.app:
        with pytest.raises(TypeError, match="missing a required argument: 'a'"):
            await example.add.enqueue()  # type: ignore[call-arg]


async def test_a_failed_attempt_is_tried_again(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        assert await (await example.fail_until.enqueue(3)).result() == 3


async def test_a_job_that_fails_raises_with_its_error(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        job = await example.fail_until.enqueue(4)
        with pytest.raises(JobFailed, match=f"job {job.id} failed: ValueError: not yet") as caught:
            await job.result()

    assert caught.value.error["type"] == "ValueError"
    (note,) = caught.value.__notes__
    assert 'raise ValueError("not yet")' in note


async def test_a_handler_can_discard_a_job(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        with pytest.raises(JobFailed, match="no use"):
            await (await example.discard.enqueue()).result()
        with pytest.raises(JobFailed, match="'nobody'"):
            await (await example.look_up.enqueue()).result()


async def test_a_handler_can_snooze_its_job(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        assert await (await example.snooze_once.enqueue()).result() == 2


async def test_a_job_can_be_cancelled_while_it_waits_and_while_it_runs(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        waiting = await example.add.options(delay="1h").enqueue(1)
        running = await example.hang.enqueue()
        await example.running.wait()

        for job in (waiting, running):
            await job.cancel()
            with pytest.raises(JobCancelled, match="was cancelled"):
                await job.result()


async def test_a_result_is_awaited_until_the_timeout(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        job = await example.add.options(run_at=datetime(2099, 1, 1, tzinfo=UTC)).enqueue(1)
        with pytest.raises(TimeoutError):
            await job.result(timeout=0.001)

        assert (await job.status())["state"] == "scheduled"


async def test_a_unique_key_is_held_by_one_job(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        order = example.add.options(delay="1h", unique="k")
        strict = example.add.options(unique={"key": "k", "on_conflict": "reject"})
        first, second = await order.enqueue(1), await order.enqueue(2)
        with pytest.raises(DuplicateKey):
            await strict.enqueue(3)

    assert (first.is_conflict, second.is_conflict, second.id) == (False, True, first.id)


async def test_a_result_that_does_not_come_in_time_names_the_job(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        job = await example.add.options(delay="1h").enqueue(1)
        with pytest.raises(TimeoutError, match=f"job {job.id} has not ended after 0.001 s"):
            await job.result(timeout=0.001)


async def test_code_that_is_not_async_uses_the_running_application(example: Example) -> None:
    def call() -> tuple[Sum, str, int]:
        job = example.add.enqueue_sync(2, b=3)
        late = example.add.options(delay="1h").enqueue_sync(1)
        many = example.double.enqueue_many_sync([{"n": 1}, {"n": 2}])
        return job.result_sync(LONG_S), late.cancel_sync()["state"], len(many)

    async with example.app, asyncio.timeout(LONG_S):
        assert await asyncio.to_thread(call) == (Sum(5), "cancelled", 2)


async def test_a_sync_call_refuses_to_block_the_event_loop(example: Example) -> None:
    async with example.app:
        with pytest.raises(RuntimeError, match="would block the running event loop"):
            example.add.enqueue_sync(1)


async def test_a_broadcast_makes_one_job_for_the_program_itself(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        (job,) = await example.double.broadcast(4)

        assert isinstance(job, JobHandle)
        assert await job.result() == 8
        with pytest.raises(Unsatisfiable, match="no connected worker may run the job"):
            await example.double.options(requires={"worker": "w1"}).broadcast(4)
        with pytest.raises(Invalid, match="/unique: the jobs of a broadcast cannot share"):
            await example.double.options(unique="k").broadcast(4)


async def test_many_jobs_are_submitted_at_once(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        jobs = await example.double.enqueue_many({"n": n} for n in range(1_001))
        handles = [job for job in jobs if isinstance(job, JobHandle)]

        assert len(handles) == 1_001
        assert await handles[0].result() == 0
        assert await handles[1_000].result() == 2_000


async def test_a_refused_job_of_many_has_its_error_at_its_position(example: Example) -> None:
    strict = example.add.options(delay="1h", unique={"key": "k", "on_conflict": "reject"})
    async with example.app, asyncio.timeout(LONG_S):
        first, second = await strict.enqueue_many([{"a": 1}, {"a": 2}])

    assert isinstance(first, JobHandle)
    assert isinstance(second, DuplicateKey)


async def test_each_of_many_jobs_can_have_options_of_its_own(example: Example) -> None:
    def job(key: str, n: int) -> NewJob[int]:
        return example.double.options(unique=key, delay="1h", tags=[key]).job(n)

    async with example.app, asyncio.timeout(LONG_S):
        handles = await example.double.enqueue_many([job("a", 1), {"n": 5}, job("b", 2)])
        again = await example.double.enqueue_many([job("b", 3), job("c", 3), job("c", 4)])
        jobs = [each for each in (*handles, *again) if isinstance(each, JobHandle)]
        records = [await each.status() for each in jobs]

    assert [record.get("tags", []) for record in records] == [["a"], [], ["b"], ["b"], ["c"], ["c"]]
    assert [record["payload"]["n"] for record in records] == [1, 5, 2, 2, 3, 3]
    assert [each.is_conflict for each in jobs] == [False, False, False, True, False, True]


async def test_a_job_of_another_task_is_refused_before_any_is_submitted(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        first = example.double.options(unique="k").job(1)
        with pytest.raises(TypeError, match="was given to enqueue_many of"):
            await example.double.enqueue_many([first, example.add.job(1)])  # type: ignore[list-item]
        (handle,) = await example.double.enqueue_many([first])

    assert isinstance(handle, JobHandle)
    assert not handle.is_conflict


async def test_a_plain_function_can_enqueue_from_its_thread(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        assert await (await example.add_from_thread.enqueue(4)).result() == 5


async def test_a_schedule_in_the_code_fires(tmp_path: Path) -> None:
    app = Schedo(tmp_path / "jobs.db")
    fired: asyncio.Future[datetime] = asyncio.get_running_loop().create_future()

    @app.every("1s")
    async def tick() -> None:
        if not fired.done():
            fired.set_result(current_job().scheduled_for)

    async with app, asyncio.timeout(LONG_S):
        instant = await fired

    assert instant.microsecond == 0


async def test_a_schedule_that_the_code_no_longer_declares_is_deleted_on_request(
    tmp_path: Path,
) -> None:
    for name in ("old", "new"):
        app = Schedo(tmp_path / "jobs.db", prune_schedules=True)
        app.cron("@daily", name=name, payload={"a": 1})(add)
        async with app:
            pass

    store = open_store(str(tmp_path / "jobs.db"))
    await store.open()
    assert await store.list_owned("code:embedded") == ["new"]
    await store.close()


async def test_jobs_survive_a_restart_of_the_program(tmp_path: Path) -> None:
    before = Example(tmp_path)
    async with before.app, asyncio.timeout(LONG_S):
        cut_off = await before.hang.enqueue()
        await before.running.wait()

    after = Example(tmp_path)
    async with after.app, asyncio.timeout(LONG_S):
        await after.running.wait()
        record = await after.app.find_backend().get(cut_off.id)

    assert (record["state"], record["attempt"], record["losses"]) == ("running", 2, 0)


async def test_who_waits_for_a_result_is_told_that_the_program_has_left(example: Example) -> None:
    async with example.app, asyncio.timeout(LONG_S):
        job = await example.hang.enqueue()
        await example.running.wait()
        waits = (asyncio.create_task(job.result()), asyncio.to_thread(job.result_sync))
        waiting = asyncio.gather(*waits, return_exceptions=True)
        await one_pass()

    async with asyncio.timeout(LONG_S / 3):
        for error in await waiting:
            assert isinstance(error, SchedoError), error
            assert (error.code, str(error)) == ("unavailable", "the server has stopped")


async def test_a_program_that_is_cancelled_while_it_leaves_ends_its_handlers_first(
    tmp_path: Path,
) -> None:
    seen: list[str] = []
    running, leaving = asyncio.Event(), asyncio.Event()

    async def lifespan(_: Schedo) -> AsyncIterator[None]:
        yield
        seen.append("shutdown")

    app = Schedo(tmp_path / "jobs.db", grace="1h", lifespan=lifespan)

    @app.task
    async def hang() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("the handler ends")

    async def program() -> None:
        async with app:
            await hang.enqueue()
            await running.wait()
            leaving.set()

    async with asyncio.timeout(LONG_S):
        task = asyncio.create_task(program())
        await leaving.wait()
        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled()
    assert seen == ["the handler ends", "shutdown"]


async def test_a_store_that_one_program_has_open_is_refused_to_another(tmp_path: Path) -> None:
    first, second = Example(tmp_path), Example(tmp_path)

    async with first.app:
        with pytest.raises(StoreLocked, match="run `schedo serve` and give their applications"):
            await second.app.__aenter__()
        with pytest.raises(RuntimeError, match="already running"):
            await first.app.__aenter__()
    async with second.app, asyncio.timeout(LONG_S):
        assert await (await second.double.enqueue(1)).result() == 2


async def test_a_store_in_postgres_belongs_to_one_program_too(
    postgres_store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.app.embedded.ALONE_S", 0.2)
    first, second = Schedo(postgres_store_url), Schedo(postgres_store_url)

    @first.every("1h")
    @first.task
    async def tidy() -> str:
        return "tidy"

    async with first, asyncio.timeout(LONG_S):
        jobs = [await tidy.options(unique=f"key {n}", delay="1h").enqueue() for n in range(8)]
        with pytest.raises(StoreLocked, match="run `schedo serve` and give their applications"):
            await second.__aenter__()
        assert await (await tidy.enqueue()).result() == "tidy"
        assert [(await job.cancel())["state"] for job in jobs] == ["cancelled"] * 8
    async with second:
        assert second.is_running


async def test_a_program_takes_over_a_store_in_postgres_whose_program_was_killed(
    postgres_store_url: str,
) -> None:
    left = cast("PostgresStore", open_store(postgres_store_url))
    await left.open()
    app = Schedo(postgres_store_url)

    @app.every("1h", name="hourly")
    @app.task
    async def one() -> int:
        return 1

    assert left._writer is not None
    left._writer.connection.terminate()
    await left._control.close()

    async with app, asyncio.timeout(LONG_S):
        assert await (await one.options(unique="key").enqueue()).result() == 1
    with suppress(StoreError):
        await left.close()


async def test_a_memory_store_needs_no_file() -> None:
    app = Schedo(":memory:")

    @app.task
    async def one() -> int:
        return 1

    async with app, asyncio.timeout(LONG_S):
        assert await (await one.enqueue()).result() == 1


async def test_an_unknown_kind_of_store_is_refused() -> None:
    with pytest.raises(Invalid, match="give the path of a SQLite file"):
        async with Schedo("mysql://localhost/jobs"):
            pass


async def test_a_server_of_a_cluster_that_may_have_lost_a_job_starts_no_handler(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, attempts = [False, False], []
    monkeypatch.setattr(Workers, "may_start", lambda _: not answers or answers.pop())
    app = Schedo(postgres_store_url)

    @app.task
    async def work() -> None:
        attempts.append(current_job().attempt)

    async with app, asyncio.timeout(LONG_S):
        job = await work.enqueue()
        await job.result()
        record = await job.status()

    assert (record["failures"], record["losses"], len(attempts)) == (0, 0, 1)
    assert not answers
