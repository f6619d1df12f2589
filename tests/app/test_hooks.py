"""The hooks of an application: its lifespan, code around each attempt, and after an error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo import CurrentJob, Discard, JobCancelled, JobFailed, Schedo, Snooze, current_job
from schedo.tasks.hooks import LifespanFailed
from tests.app.example import LONG_S


class Story:
    """An application whose hooks and handlers write down what happens."""

    def __init__(self, **options: Any) -> None:
        self.lines: list[str] = []
        self.running = asyncio.Event()
        app = self.app = Schedo(":memory:", grace=0, lifespan=self._live, **options)
        app.around(self._outer)
        app.around(self._inner)
        app.on_error(self._note_error)
        self.work = app.task(retries=0)(self._work)
        self.work_plainly = app.task(retries=0)(self._work_plainly)
        self.hang = app.task(self._hang)

    async def _live(self, app: Schedo) -> AsyncIterator[None]:
        app.state.pool = "pool"
        self.lines.append("start")
        yield
        self.lines.append("stop")

    @contextlib.asynccontextmanager
    async def _outer(self, job: CurrentJob) -> AsyncIterator[None]:
        self.lines.append(f"before {job.task}")
        try:
            yield
        except BaseException as error:
            self.lines.append(f"saw {type(error).__name__} {job.stop_reason}")
            raise
        self.lines.append(f"after {job.task}")

    async def _inner(self, job: CurrentJob) -> AsyncIterator[None]:
        self.lines.append("inner")
        yield

    async def _note_error(self, job: CurrentJob, error: BaseException) -> None:
        self.lines.append(f"{job.task} {job.attempt}: {error!r}")

    async def _work(self, error: str = "") -> str:
        return self._act(error)

    def _work_plainly(self, error: str = "") -> str:
        return self._act(error)

    def _act(self, error: str) -> str:
        kinds = {"ValueError": ValueError, "Discard": Discard}
        if error == "Snooze" and current_job().attempt == 1:
            raise Snooze(0)
        if error in kinds:
            raise kinds[error]("no")
        self.lines.append(f"work with the {self.app.state.pool}")
        return "done"

    async def _hang(self) -> None:
        self.running.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("name", ["work", "work_plainly"])
async def test_the_hooks_are_called_around_a_job_and_a_process(name: str) -> None:
    story = Story()
    async with story.app, asyncio.timeout(LONG_S):
        result = await (await getattr(story, name).enqueue()).result()

    assert result == "done"
    assert story.lines == [
        *("start", f"before _{name}", "inner", "work with the pool", f"after _{name}", "stop"),
    ]


@pytest.mark.parametrize("name", ["work", "work_plainly"])
async def test_an_error_is_seen_around_the_attempt_and_reported(name: str) -> None:
    story = Story()
    async with story.app, asyncio.timeout(LONG_S):
        with pytest.raises(JobFailed, match="no") as caught:
            await (await getattr(story, name).enqueue("ValueError")).result()

    assert story.lines[3:-1] == ["saw ValueError None", f"_{name} 1: ValueError('no')"]
    (note,) = caught.value.__notes__
    assert "in _act" in note
    assert "tasks/hooks.py" not in note


@pytest.mark.parametrize("error", ["Snooze", "Discard"])
async def test_an_outcome_that_the_handler_chooses_is_not_an_error(error: str) -> None:
    story = Story()
    async with story.app, asyncio.timeout(LONG_S):
        with contextlib.suppress(JobFailed):
            await (await story.work.enqueue(error)).result()

    assert story.lines[3] == f"saw {error} None"
    assert not [line for line in story.lines if line.startswith("_work 1:")]


async def test_a_stop_is_seen_around_the_attempt_and_is_not_an_error() -> None:
    story = Story()
    async with story.app, asyncio.timeout(LONG_S):
        job = await story.hang.enqueue()
        await story.running.wait()
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result()

    assert story.lines == ["start", "before _hang", "inner", "saw CancelledError cancel", "stop"]


async def test_a_hook_before_the_handler_that_fails_fails_the_attempt() -> None:
    app = Schedo(":memory:")

    @app.around
    async def refuse(job: CurrentJob) -> AsyncIterator[None]:
        if job.attempt == 1:
            raise PermissionError("not now")
        yield

    @app.task(retries=0)
    async def work() -> None: ...

    async with app, asyncio.timeout(LONG_S):
        with pytest.raises(JobFailed, match="PermissionError: not now"):
            await (await work.enqueue()).result()


@pytest.mark.parametrize("raised", [OSError("no network"), SystemExit(1)], ids=["error", "exit"])
async def test_an_error_of_an_on_error_hook_is_logged_and_hides_nothing(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    app = Schedo(":memory:")

    @app.on_error
    def fail(job: CurrentJob, error: BaseException) -> None:
        raise raised

    @app.task(retries=0)
    async def work() -> None:
        raise ValueError("the cause")

    async with app, asyncio.timeout(LONG_S):
        with pytest.raises(JobFailed, match="ValueError: the cause"):
            await (await work.enqueue()).result()

    assert "its on_error hook failed" in caplog.text


async def test_a_startup_that_fails_starts_nothing_and_says_why() -> None:
    async def live(app: Schedo) -> AsyncIterator[None]:
        if app.registry.tasks == {}:
            raise ConnectionError("no database")
        yield

    app = Schedo(":memory:", lifespan=live)

    with pytest.raises(LifespanFailed, match=r"startup .* failed: ConnectionError: no database"):
        await app.__aenter__()
    with pytest.raises(RuntimeError, match="is not running"):
        app.find_backend()


async def test_a_shutdown_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def live(app: Schedo) -> AsyncIterator[None]:
        yield
        raise ConnectionError("no database")

    async with Schedo(":memory:", lifespan=live):
        pass

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "the shutdown of the application failed" in caplog.text


def test_a_hook_of_a_wrong_kind_is_refused_when_it_is_declared() -> None:
    async def without_yield(app: Schedo) -> None: ...

    with pytest.raises(TypeError, match="lifespan must be an async function with one `yield`"):
        Schedo(lifespan=without_yield)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="around must be an async function with one `yield`"):
        Schedo().around(5)  # type: ignore[type-var]
