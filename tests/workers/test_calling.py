"""One attempt of a Python task: how it can end, how it is stopped, what it can do to its runner."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schedo.core.leases import (
    Completed,
    Failed,
    HandedBack,
    Outcome,
    Report,
    Snoozed,
    Stopped,
    StopReason,
)
from schedo.core.model import Failure, LeaseKey, Options
from schedo.workers.arguments import Arguments
from schedo.workers.calling import TaskRunner, Watcher, clip
from schedo.workers.contract import Call
from schedo.workers.handling import Discard, Snooze, current_job
from schedo.workers.registry import Registry, TaskSpec, check_function
from tests.workers.calls import JOB, KEY, failure_of, make_call, result_of


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


class Notes(Watcher):
    """Remembers what it hears."""

    def __init__(self, may_start: bool = True) -> None:
        self.started: list[LeaseKey] = []
        self.left: list[LeaseKey] = []
        self._may_start = may_start

    def may_start(self, key: LeaseKey) -> bool:
        self.started.append(key)
        return self._may_start

    def abandoned(self, key: LeaseKey) -> None:
        self.left.append(key)


def make_task(
    function: Callable[..., Any], no_retry: tuple[type[BaseException], ...] = ()
) -> TaskSpec:
    return TaskSpec("task", function, Arguments("task", function), no_retry=no_retry)


async def run(function: Callable[..., Any], payload: Any = None, **options: Any) -> Report:
    with ThreadPoolExecutor(1) as pool:
        runner = TaskRunner(make_task(function, **options), pool)
        return await runner(make_call(payload, "task"))


async def outcome_of(function: Callable[..., Any]) -> Outcome:
    return (await run(function)).outcome


async def raising(error: BaseException) -> None:
    raise error


def raising_plainly(error: BaseException) -> None:
    raise error


# Ends.


async def test_an_async_handler_gets_its_arguments_and_its_result_is_kept() -> None:
    async def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    report = await run(add, {"a": 1, "b": 2})

    assert report == Report(KEY, Completed(b'{"sum":3}'))


async def test_a_plain_function_runs_in_a_thread() -> None:
    def name() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert result_of(await run(name)) is False


async def test_a_plain_wrapper_of_an_async_function_is_awaited() -> None:
    async def inner() -> str:
        return "inner"

    assert result_of(await run(lambda: inner())) == "inner"


async def test_a_partial_of_an_async_function_runs_in_the_loop() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    assert result_of(await run(functools.partial(add, b=2), {"a": 1})) == 3


async def test_none_is_no_result() -> None:
    async def nothing() -> None: ...

    assert await outcome_of(nothing) == Completed(None)


@pytest.mark.parametrize("make", [raising, raising_plainly], ids=["async", "plain"])
async def test_an_exception_fails_the_attempt_with_its_traceback(make: Any) -> None:
    report = await run(functools.partial(make, ValueError("no such user")))

    failure = failure_of(report)
    assert (failure.type, failure.message) == ("ValueError", "no such user")
    assert isinstance(report.outcome, Failed)
    assert report.outcome.retryable
    assert failure.traceback is not None
    assert failure.traceback.endswith("raise error\nValueError: no such user\n")
    assert failure.traceback.count("File") == 1


async def test_an_exception_named_in_no_retry_is_final() -> None:
    error = KeyError("x")

    report = await run(functools.partial(raising, error), no_retry=(LookupError,))

    assert isinstance(report.outcome, Failed)
    assert not report.outcome.retryable


@pytest.mark.parametrize("make", [raising, raising_plainly], ids=["async", "plain"])
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError(), MemoryError()],
    ids=lambda error: type(error).__name__,
)
async def test_nothing_that_a_handler_raises_gets_out(make: Any, error: BaseException) -> None:
    failure = failure_of(await run(functools.partial(make, error)))

    # Python itself turns a StopIteration into this.
    wanted = "RuntimeError" if isinstance(error, StopIteration) else type(error).__name__
    assert failure.type == wanted


async def test_endless_recursion_fails_the_attempt() -> None:
    async def deep() -> None:
        def down(n: int) -> int:
            return down(n + 1) + 1

        down(0)

    failure = failure_of(await run(deep))

    assert failure.type == "RecursionError"
    assert failure.traceback is not None
    assert len(failure.traceback) < 16_384


async def test_an_exception_that_cannot_be_shown_still_fails_the_attempt() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    failure = failure_of(await run(functools.partial(raising, Rude())))

    assert failure.message == "(its message cannot be read: RuntimeError)"


async def test_a_long_message_and_traceback_are_cut() -> None:
    failure = failure_of(await run(functools.partial(raising, ValueError("é\ud800" * 50_000))))

    assert failure.traceback is not None
    assert len(failure.message.encode()) <= 2_048
    assert len(failure.traceback.encode()) <= 14_336
    assert failure.traceback.startswith("...")


@pytest.mark.parametrize("is_raised", [True, False], ids=["raised", "returned"])
async def test_snooze_and_discard_end_the_attempt_raised_or_returned(is_raised: bool) -> None:
    async def end(with_: Exception) -> Any:
        if is_raised:
            raise with_
        return with_

    snoozed = await outcome_of(functools.partial(end, Snooze("5m")))
    discarded = await outcome_of(functools.partial(end, Discard("spam")))

    assert snoozed == Snoozed(300_000_000)
    assert discarded == Failed(Failure("discarded", "spam"), retryable=False)


def test_a_snooze_takes_the_usual_durations() -> None:
    delays = [Snooze("90s"), Snooze(1.5), Snooze(timedelta(minutes=1))]

    assert [snooze.delay_us for snooze in delays] == [90_000_000, 1_500_000, 60_000_000]
    with pytest.raises(ValueError, match="is not a duration"):
        Snooze("soon")


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (object(), "result-not-json"),
        ("\ud800", "result-not-json"),
        ("x" * 1_048_575, "result-too-large"),
    ],
    ids=["object", "surrogate", "large"],
)
async def test_a_result_that_cannot_be_kept_fails_for_good(result: object, kind: str) -> None:
    async def give() -> object:
        return result

    report = await run(give)

    assert failure_of(report).type == kind
    assert isinstance(report.outcome, Failed)
    assert not report.outcome.retryable


async def test_a_bad_payload_fails_for_good_and_the_handler_does_not_run() -> None:
    ran: list[int] = []

    async def add(a: int) -> None:
        ran.append(a)

    report = await run(add, {"a": "one"})

    failure = Failure("bad-payload", "payload /a: Expected `int`, got `str`")
    assert report.outcome == Failed(failure, retryable=False)
    assert ran == []


# What a handler sees.


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_handler_can_ask_which_job_it_runs(is_async: bool) -> None:
    def look() -> dict[str, Any]:
        job = current_job()
        assert job.scheduled_for == datetime(2026, 11, 20, 11, 4, 5, 250, tzinfo=UTC)
        assert job.stop_reason is None
        return {
            "id": job.id,
            "task": job.task,
            "queue": job.queue,
            "attempt": job.attempt,
            "trigger": job.trigger,
            "missed": job.missed_count,
            "tags": job.tags,
            "meta": job.meta,
            "trace": job.traceparent,
            "cancelled": job.is_cancelled,
        }

    async def look_async() -> dict[str, Any]:
        return look()

    options = Options(tags=("a",), meta={"b": 1}, traceparent="00-x")
    with ThreadPoolExecutor(1) as pool:
        runner = TaskRunner(make_task(look_async if is_async else look), pool)
        report = await runner(make_call(None, "task", options))

    assert result_of(report) == {
        "id": JOB,
        "task": "task",
        "queue": "default",
        "attempt": 2,
        "trigger": "submit",
        "missed": 0,
        "tags": ["a"],
        "meta": {"b": 1},
        "trace": "00-x",
        "cancelled": False,
    }


def test_outside_of_a_handler_there_is_no_current_job() -> None:
    with pytest.raises(RuntimeError, match="only inside a task"):
        current_job()


# Stops.


async def stop_once_running(runner: TaskRunner, call: Call, running: asyncio.Event) -> Report:
    attempt = asyncio.create_task(runner(call))
    async with asyncio.timeout(30):
        await running.wait()
        call.stop.set(StopReason.CANCEL)
        return await attempt


async def test_an_async_handler_is_cancelled_when_told_to_stop(
    threads: ThreadPoolExecutor,
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
        TaskRunner(make_task(wait), threads), make_call(None, "task"), running
    )

    assert report.outcome == Stopped()
    assert seen == ["cancel"]


async def test_a_handler_that_was_stopped_has_stopped_whatever_it_returns(
    threads: ThreadPoolExecutor,
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
        TaskRunner(make_task(go_on), threads), make_call(None, "task"), running
    )

    assert report.outcome == Stopped()


async def test_a_plain_function_can_look_whether_to_stop(threads: ThreadPoolExecutor) -> None:
    running = asyncio.Event()
    loop = asyncio.get_running_loop()
    stopped = threading.Event()
    seen: list[bool] = []

    def work() -> None:
        loop.call_soon_threadsafe(running.set)
        stopped.wait(30)
        seen.append(current_job().is_cancelled)

    call = make_call(None, "task")
    attempt = asyncio.create_task(TaskRunner(make_task(work), threads)(call))
    async with asyncio.timeout(30):
        await running.wait()
        call.stop.set(StopReason.TIMEOUT)
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
    threads: ThreadPoolExecutor, release: asyncio.Event
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
    report = await stop_once_running(runner, make_call(None, "task"), running)

    assert report.outcome == Stopped()
    assert notes.left == [KEY]


async def test_a_function_whose_turn_comes_after_its_stop_does_not_run(
    threads: ThreadPoolExecutor,
) -> None:
    ran: list[int] = []
    release = threading.Event()
    busy = [threads.submit(release.wait, 30) for _ in range(2)]
    notes = Notes()
    runner = TaskRunner(make_task(lambda: ran.append(1)), threads, grace_s=0.01, watcher=notes)
    call = make_call(None, "task")
    call.stop.set(StopReason.CANCEL)

    report = await runner(call)
    release.set()
    for future in busy:
        future.result(30)
    threads.shutdown()

    assert report.outcome == Stopped()
    assert ran == []


async def test_an_attempt_that_may_not_start_is_handed_back(threads: ThreadPoolExecutor) -> None:
    ran: list[int] = []

    async def handler() -> None:
        ran.append(1)

    notes = Notes(may_start=False)
    report = await TaskRunner(make_task(handler), threads, watcher=notes)(make_call(None, "task"))

    assert report.outcome == HandedBack()
    assert (notes.started, ran) == ([KEY], [])


async def test_cancelling_the_runner_cancels_the_handler(threads: ThreadPoolExecutor) -> None:
    running = asyncio.Event()
    ended = asyncio.Event()

    async def wait() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    attempt = asyncio.create_task(TaskRunner(make_task(wait), threads)(make_call(None, "task")))
    async with asyncio.timeout(30):
        await running.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await ended.wait()


# Declaring.


@pytest.mark.parametrize(
    ("text", "keep_end", "wanted"),
    [
        ("short", False, "short"),
        ("0123456789x", False, "0123456..."),
        ("0123456789x", True, "...456789x"),
        ("ééééééé", False, "ééé..."),
    ],
)
def test_text_is_cut_between_characters(text: str, keep_end: bool, wanted: str) -> None:
    assert clip(text, 10, keep_end=keep_end) == wanted


async def ticks() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [(3, "a task is a function"), (int, "a task is a function"), (ticks, "is a generator")],
    ids=["number", "class", "generator"],
)
def test_what_cannot_be_a_task_is_refused(function: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_function(function)


@pytest.mark.parametrize(
    ("name", "message"), [("shell", "is built in"), ("send", "two tasks named 'send'")]
)
def test_a_task_name_that_is_taken_is_refused(name: str, message: str) -> None:
    registry = Registry()
    registry.add_task(TaskSpec("send", print, Arguments("send", lambda: None)))

    with pytest.raises(ValueError, match=message):
        registry.add_task(TaskSpec(name, print, Arguments("send", lambda: None)))
