"""Stopping an attempt of a Python task, even if its handler resists."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Completed, Released, Stopped, StopReason
from schedo.core.model import LeaseKey
from schedo.tasks.arguments import Arguments
from schedo.tasks.current_job import CurrentJob, current_job
from schedo.tasks.hooks import Hooks
from schedo.tasks.python import TaskRunner, Watcher
from schedo.tasks.registry import TaskSpec
from schedo.tasks.runner import AttemptContext
from schedo.tasks.threads import HandlerThreads
from tests.worker.calls import KEY, make_context, run_task


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    with HandlerThreads(2) as pool:
        yield pool


class Notes(Watcher):
    """Records its calls."""

    def __init__(self, may_start: bool = True, on_start: Callable[[], None] = lambda: None) -> None:
        self.started: list[LeaseKey] = []
        self.left: list[LeaseKey] = []
        self._may_start = may_start
        self._on_start = on_start

    def may_start(self, key: LeaseKey) -> bool:
        self.started.append(key)
        self._on_start()
        return self._may_start

    def abandoned(self, key: LeaseKey) -> None:
        self.left.append(key)


def make_task(
    function: Callable[..., Any], no_retry: tuple[type[BaseException], ...] = ()
) -> TaskSpec:
    return TaskSpec("task", function, Arguments("task", function), no_retry=no_retry)


async def stop_once_running(
    runner: TaskRunner, context: AttemptContext, running: asyncio.Event
) -> AttemptResult:
    attempt = asyncio.create_task(run_task(runner, context))
    async with asyncio.timeout(30):
        await running.wait()
        context.stop.set(StopReason.CANCEL)
        return await attempt


async def test_an_async_handler_is_cancelled_by_a_stop(
    threads: HandlerThreads,
) -> None:
    running = asyncio.Event()
    seen: list[str] = []

    async def wait() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(str(current_job().stop_reason))

    report = await stop_once_running(
        TaskRunner(make_task(wait), threads), make_context(None, "task"), running
    )

    assert report.outcome == Stopped()
    assert seen == ["cancel"]


async def test_an_async_handler_in_a_plain_wrapper_is_cancelled_by_a_stop(
    threads: HandlerThreads,
) -> None:
    running = asyncio.Event()
    seen: list[str] = []

    async def wait() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(str(current_job().stop_reason))

    @functools.wraps(wait)
    def wrapper() -> Any:
        return wait()

    report = await stop_once_running(
        TaskRunner(make_task(wrapper), threads), make_context(None, "task"), running
    )

    assert report.outcome == Stopped()
    assert seen == ["cancel"]


async def test_a_stop_during_a_plain_wrapper_keeps_its_async_handler_from_beginning(
    threads: HandlerThreads,
) -> None:
    running, stopped = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    def wrapper() -> Any:
        loop.call_soon_threadsafe(running.set)
        stopped.wait(30)
        return work()

    context = make_context(None, "task")
    attempt = asyncio.create_task(run_task(TaskRunner(make_task(wrapper), threads), context))
    async with asyncio.timeout(30):
        await running.wait()
        context.stop.set(StopReason.CANCEL)
        stopped.set()
        report = await attempt

    assert report.outcome == Stopped()
    assert begun == []


async def test_the_outcome_of_a_stopped_handler_is_stopped_whatever_it_returns(
    threads: HandlerThreads,
) -> None:
    running = asyncio.Event()

    async def go_on() -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    report = await stop_once_running(
        TaskRunner(make_task(go_on), threads), make_context(None, "task"), running
    )

    assert report.outcome == Stopped()


async def test_a_plain_function_can_check_whether_to_stop(threads: HandlerThreads) -> None:
    running = asyncio.Event()
    loop = asyncio.get_running_loop()
    stopped = threading.Event()
    seen: list[bool] = []

    def work() -> None:
        loop.call_soon_threadsafe(running.set)
        stopped.wait(30)
        seen.append(current_job().is_cancelled)

    context = make_context(None, "task")
    attempt = asyncio.create_task(run_task(TaskRunner(make_task(work), threads), context))
    async with asyncio.timeout(30):
        await running.wait()
        context.stop.set(StopReason.TIMEOUT)
        stopped.set()
        report = await attempt

    assert report.outcome == Stopped()
    assert seen == [True]


@pytest.fixture
async def release() -> AsyncIterator[asyncio.Event]:
    """Ends a handler that ignores everything else."""
    event = asyncio.Event()
    yield event
    event.set()


async def test_a_handler_that_ignores_its_stop_is_abandoned(
    threads: HandlerThreads, release: asyncio.Event
) -> None:
    running = asyncio.Event()
    notes = Notes()

    async def stubborn() -> None:
        running.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    runner = TaskRunner(make_task(stubborn), threads, grace_s=0.01, watcher=notes)
    report = await stop_once_running(runner, make_context(None, "task"), running)

    assert report.outcome == Stopped()
    assert notes.left == [KEY]


async def test_a_plain_function_that_is_stopped_before_it_gets_a_thread_does_not_run(
    threads: HandlerThreads,
) -> None:
    ran: list[int] = []
    release = threading.Event()
    busy = [threads.submit(release.wait, 30) for _ in range(2)]
    started = asyncio.Event()
    notes = Notes(on_start=started.set)
    runner = TaskRunner(make_task(lambda: ran.append(1)), threads, grace_s=0.01, watcher=notes)

    report = await stop_once_running(runner, make_context(None, "task"), started)
    release.set()
    for future in busy:
        future.result(30)
    threads.shutdown()

    assert report.outcome == Stopped()
    assert ran == []


async def test_an_attempt_that_is_stopped_before_it_begins_does_not_start(
    threads: HandlerThreads,
) -> None:
    ran: list[int] = []

    async def handler() -> None:
        ran.append(1)

    notes = Notes()
    context = make_context(None, "task")
    attempt = asyncio.create_task(
        run_task(TaskRunner(make_task(handler), threads, watcher=notes), context)
    )
    context.stop.set(StopReason.CANCEL)

    assert (await attempt).outcome == Stopped()
    assert (notes.started, ran) == ([], [])


async def test_an_attempt_that_may_not_start_is_released(threads: HandlerThreads) -> None:
    ran: list[int] = []

    async def handler() -> None:
        ran.append(1)

    notes = Notes(may_start=False)
    runner = TaskRunner(make_task(handler), threads, watcher=notes)
    report = await run_task(runner, make_context(None, "task"))

    assert report.outcome == Released()
    assert (notes.started, ran) == ([KEY], [])


async def test_an_attempt_that_gets_no_thread_is_released(
    threads: HandlerThreads, no_new_thread: None
) -> None:
    runner = TaskRunner(make_task(lambda: 1), threads)

    result = await run_task(runner, make_context(None, "task"))

    assert result.outcome == Released()


async def test_an_attempt_that_was_released_does_not_run_in_a_thread_that_becomes_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    busy = threading.Event()
    ran: list[int] = []
    monkeypatch.setattr("schedo.tasks.shortage.PAUSE_S", 0.01)
    with HandlerThreads(2) as threads:
        threads.submit(busy.wait)
        runner = TaskRunner(make_task(lambda: ran.append(1)), threads)
        with monkeypatch.context() as machine:
            machine.setattr(threading.Thread, "start", refuse)
            result = await run_task(runner, make_context(None, "task"))
        busy.set()

    assert (result.outcome, ran) == (Released(), [])


async def test_an_abandoned_function_keeps_no_other_attempt_from_its_thread() -> None:
    running, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def block() -> None:
        loop.call_soon_threadsafe(running.set)
        release.wait(30)

    with HandlerThreads(1) as threads:
        blocked = TaskRunner(make_task(block), threads, grace_s=0.01)
        await stop_once_running(blocked, make_context(None, "task"), running)
        try:
            async with asyncio.timeout(5):
                result = await run_task(
                    TaskRunner(make_task(lambda: 1), threads), make_context(None, "task")
                )
        finally:
            release.set()

    assert result.outcome == Completed(b"1")


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_hook_around_a_plain_function_is_cancelled_by_a_stop(
    threads: HandlerThreads, is_before: bool
) -> None:
    waiting, ended = asyncio.Event(), list[str]()

    @contextlib.asynccontextmanager
    async def around(job: CurrentJob) -> AsyncIterator[None]:
        try:
            if not is_before:
                yield
            waiting.set()
            await asyncio.Event().wait()  # such as for a connection of a pool
            yield
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    notes, hooks = Notes(), Hooks(around=[around])
    runner = TaskRunner(make_task(lambda: 1), threads, watcher=notes, hooks=hooks)
    result = await stop_once_running(runner, make_context(None, "task"), waiting)

    assert (result.outcome, ended, notes.left) == (Stopped(), ["cancelled"], [])
