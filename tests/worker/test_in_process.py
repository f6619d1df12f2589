"""The worker in the server's own loop, with a real engine and runners that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from schedo.clock import SystemClock
from schedo.core.leases import AttemptResult, Completed, Failed, Stopped
from schedo.core.model import ONCE, Failure, Job, JobSpec, Options
from schedo.core.states import State
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.store.sqlite.store import SqliteStore
from schedo.tasks.runner import AttemptContext
from schedo.worker.in_process import LocalWorker
from tests.passes import one_pass

LONG_S = 20.0


class Stage:
    """A runner whose attempts end when the test ends them, or when they are stopped."""

    def __init__(self) -> None:
        self.calls: list[AttemptContext] = []
        self.called = asyncio.Event()
        self.go_on = asyncio.Event()
        self.heeds_stops = True

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        self.calls.append(context)
        self.called.set()
        ways = [asyncio.create_task(self.go_on.wait())]
        if self.heeds_stops:
            ways.append(asyncio.create_task(context.stop.wait()))  # type: ignore[arg-type]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        return AttemptResult(
            context.lease.key, Completed(b"1") if self.go_on.is_set() else Stopped()
        )


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = Engine(SqliteStore(tmp_path / "jobs.db"), SystemClock())
    await engine.start()
    yield engine
    await engine.stop()


async def submit(engine: Engine, task: str, count: int = 1, **options: Any) -> list[int]:
    """Submit jobs and return their ids."""
    specs = [JobSpec(task, options=Options(**options))] * count
    answers: list[Accepted[Job] | SchedoError] = await engine.submit(specs)
    return [answer.job.id for answer in answers if isinstance(answer, Accepted)]


async def test_no_more_attempts_run_at_once_than_there_are_slots(engine: Engine) -> None:
    stage = Stage()
    worker = LocalWorker(engine, "local", 2, {"work": stage})
    worker.attach()
    ids = await submit(engine, "work", 5)
    await asyncio.wait_for(stage.called.wait(), LONG_S)
    await engine.flush()
    assert len(stage.calls) == 2

    stage.go_on.set()

    assert [(await engine.wait(i, LONG_S)).state for i in ids] == [State.COMPLETED] * 5
    await worker.drain(LONG_S)


async def test_a_server_that_is_no_longer_sure_of_its_jobs_starts_no_runner(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, False]
    monkeypatch.setattr(engine.sessions, "may_start", lambda: not answers or answers.pop())
    stage = Stage()
    stage.go_on.set()
    worker = LocalWorker(engine, "local", 1, {"work": stage})
    worker.attach()

    jobs = [await engine.wait(i, LONG_S) for i in await submit(engine, "work", 3)]

    assert [(each.state, each.failures, each.losses) for each in jobs] == [
        (State.COMPLETED, 0, 0)
    ] * 3
    assert len(stage.calls) == 3
    assert not answers
    await worker.drain(LONG_S)


async def test_an_attempt_whose_server_loses_its_jobs_while_it_is_prepared_is_released(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, True]  # the last one first: for the call of the runner
    monkeypatch.setattr(engine.sessions, "may_start", lambda: not answers or answers.pop())
    effects: list[int] = []

    async def prepare(context: AttemptContext) -> AttemptResult:
        await one_pass()
        context.confirm()
        effects.append(context.lease.key.attempt)
        return AttemptResult(context.lease.key, Completed())

    worker = LocalWorker(engine, "local", 1, {"work": prepare})
    worker.attach()

    [job] = [await engine.wait(i, LONG_S) for i in await submit(engine, "work")]

    assert (job.state, job.failures, job.losses) == (State.COMPLETED, 0, 0)
    assert not answers
    assert effects == [job.attempt]
    await worker.drain(LONG_S)


async def test_a_runner_that_raises_fails_its_job_and_no_other(engine: Engine) -> None:
    async def broken(context: AttemptContext) -> AttemptResult:
        raise RuntimeError("a bug")

    stage = Stage()
    stage.go_on.set()
    worker = LocalWorker(engine, "local", 1, {"http": broken, "work": stage})
    worker.attach()
    (failing,) = await submit(engine, "http")
    (fine,) = await submit(engine, "work")

    failed = await engine.wait(failing, LONG_S)

    assert failed.failure is not None
    assert failed.failure.message == "RuntimeError: a bug"
    assert (await engine.wait(fine, LONG_S)).state is State.COMPLETED
    await worker.drain(LONG_S)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Completed(b"no json"), "result-not-json"),
        (Failed(Failure("\ud800", "\ud800\0", exit_code=2**70), retryable=False), "?"),
        (None, "runner-error"),
        (asyncio.CancelledError("\ud800"), "runner-error"),
    ],
    ids=["no json", "odd text and number", "no report", "cancelled by itself"],
)
async def test_an_invalid_result_of_a_runner_fails_its_job_and_frees_its_slot(
    engine: Engine, outcome: Any, error: str
) -> None:
    async def run(context: AttemptContext) -> AttemptResult:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome and AttemptResult(context.lease.key, outcome)

    worker = LocalWorker(engine, "local", 1, {"work": run})
    worker.attach()
    first, second = await submit(engine, "work", 2, retry=ONCE)

    for job_id in (first, second):
        job = await engine.wait(job_id, LONG_S)
        assert job.failure is not None
        assert (job.state, job.failure.type) == (State.FAILED, error)
    await asyncio.wait_for(worker.drain(LONG_S), LONG_S)


async def test_a_drain_lets_running_attempts_finish(engine: Engine) -> None:
    stage = Stage()
    worker = LocalWorker(engine, "local", 1, {"work": stage})
    worker.attach()
    (running,) = await submit(engine, "work")
    await asyncio.wait_for(stage.called.wait(), LONG_S)

    drain = asyncio.create_task(worker.drain(LONG_S))
    stage.go_on.set()
    await drain

    assert (await engine.wait(running, LONG_S)).state is State.COMPLETED


async def test_attempts_that_a_drain_stops_are_released_uncounted(engine: Engine) -> None:
    stage = Stage()
    worker = LocalWorker(engine, "local", 1, {"work": stage})
    worker.attach()
    (running,) = await submit(engine, "work")
    await asyncio.wait_for(stage.called.wait(), LONG_S)

    await worker.drain(0.0)
    await engine.flush()

    job = await engine.get(running)
    assert (job.state, job.attempt, job.failures, job.losses) == (State.QUEUED, 1, 0, 0)


async def test_a_second_drain_ends_at_once_and_reports_no_result(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    stage.heeds_stops = False
    worker = LocalWorker(engine, "local", 1, {"work": stage})
    worker.attach()
    (running,) = await submit(engine, "work")
    await asyncio.wait_for(stage.called.wait(), LONG_S)
    monkeypatch.setattr("schedo.worker.executor.STOP_GRACE_S", 0.01)
    await worker.drain(0.0)

    monkeypatch.setattr("schedo.worker.executor.STOP_GRACE_S", 10 * LONG_S)
    await asyncio.wait_for(worker.drain(10 * LONG_S), LONG_S)
    await engine.flush()

    attempts = await engine.store.list_attempts(running)
    assert [attempt.outcome for attempt in attempts] == ["released"]


async def test_an_at_most_once_attempt_is_not_released(engine: Engine) -> None:
    stage = Stage()
    worker = LocalWorker(engine, "local", 1, {"work": stage})
    worker.attach()
    (running,) = await submit(engine, "work", at_most_once=True)
    await asyncio.wait_for(stage.called.wait(), LONG_S)

    await worker.drain(0.0)
    await engine.flush()

    assert (await engine.get(running)).state is State.FAILED
