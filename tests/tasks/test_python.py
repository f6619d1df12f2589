"""One attempt of a Python task: its outcomes, its stop, and hostile handlers."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Outcome, Snoozed
from schedo.core.model import Failure
from schedo.protocol.frames import Results, encode_frame
from schedo.tasks.arguments import Arguments
from schedo.tasks.current_job import Discard, Snooze
from schedo.tasks.python import TaskRunner, clip
from schedo.tasks.registry import TaskSpec
from schedo.tasks.threads import HandlerThreads
from tests.worker.calls import KEY, begin, failure_of, make_context, result_of, run_task
from tests.worker.raised import KINDS, raise_kind, raise_kind_plainly, shown


def make_task(
    function: Callable[..., Any], no_retry: tuple[type[BaseException], ...] = ()
) -> TaskSpec:
    return TaskSpec("task", function, Arguments("task", function), no_retry=no_retry)


async def run(function: Callable[..., Any], payload: Any = None, **options: Any) -> AttemptResult:
    with HandlerThreads(1) as pool:
        runner = TaskRunner(make_task(function, **options), pool)
        return await run_task(runner, make_context(payload, "task"))


async def outcome_of(function: Callable[..., Any]) -> Outcome:
    return (await run(function)).outcome


async def raising(error: BaseException) -> None:
    raise error


def raising_plainly(error: BaseException) -> None:
    raise error


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Ruthless:
    """An object that runs code when it is encoded as JSON."""

    def model_dump(self, mode: str) -> Any:
        raise ValueError("\ud800")


async def test_an_async_handler_gets_its_arguments_and_its_result_is_kept() -> None:
    async def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    report = await run(add, {"a": 1, "b": 2})

    assert (report.key, report.outcome) == (KEY, Completed(b'{"sum":3}'))


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


async def test_a_handler_that_returns_none_has_no_result() -> None:
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


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_exception_of_a_handler_escapes(kind: str, is_async: bool) -> None:
    function = raise_kind if is_async else raise_kind_plainly

    async with asyncio.timeout(20):
        failure = failure_of(await run(function, {"kind": kind}))

    assert failure.type == shown(kind, is_async=is_async)
    assert len(encode_frame(Results([AttemptResult(KEY, Failed(failure))]))) < 20_000


async def test_an_attempt_discarded_with_its_loop_reports_nothing() -> None:
    ended: list[AttemptResult] = []
    context = make_context(None, "task")

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with HandlerThreads(1) as pool:
        runner = TaskRunner(make_task(wait), pool)
        begin(runner, context, ended.append)
        await asyncio.to_thread(int)  # its first steps
        assert context.handler is not None
        coroutine = context.handler.get_coro()
        assert coroutine is not None
        coroutine.close()

    assert ended == []


@pytest.mark.parametrize("delay_us", [-1, 10**30, float("inf"), "soon", None, True])
async def test_a_snooze_with_a_changed_delay_is_bounded_or_fails(delay_us: Any) -> None:
    snooze = Snooze("5m")
    snooze.delay_us = delay_us

    outcome = await outcome_of(functools.partial(raising, snooze))

    if isinstance(outcome, Snoozed):
        assert 0 <= outcome.delay_us <= 100 * 366 * 86_400_000_000
    else:
        assert isinstance(outcome, Failed)
        assert outcome.failure.type == "unreadable-exception"


async def test_an_ended_attempt_is_free_without_a_garbage_collection(no_collection: None) -> None:
    tasks: list[weakref.ref[asyncio.Task[Any]]] = []

    async def note() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))

    await run(note)

    assert [task() for task in tasks] == [None]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Keep the collector from running here what other tests left to be finalized: with no stack
    left, any finalizer fails, and pytest would count that as a failure of the test at hand."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
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


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (object(), "result-not-json"),
        ("\ud800", "result-not-json"),
        ("x" * 1_048_575, "result-too-large"),
        (msgspec.Raw(b"not json"), "result-not-json"),
        ([msgspec.Raw(b"\xff")], "result-not-json"),
        (nested(100_000), "result-not-json"),
        (Ruthless(), "result-not-json"),
        (float("nan"), "result-not-json"),
        ({"mean": [1.5, float("-inf")], "of": None}, "result-not-json"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:20],
)
async def test_a_result_that_cannot_be_stored_fails_the_job_without_a_retry(
    result: object, kind: str
) -> None:
    async def give() -> object:
        return result

    report = await run(give)

    assert failure_of(report).type == kind
    assert isinstance(report.outcome, Failed)
    assert not report.outcome.retryable


async def test_a_bad_payload_fails_the_job_without_a_retry_and_the_handler_does_not_run() -> None:
    ran: list[int] = []

    async def add(a: int) -> None:
        ran.append(a)

    report = await run(add, {"a": "one"})

    failure = Failure("bad-payload", "payload /a: Expected `int`, got `str`")
    assert report.outcome == Failed(failure, retryable=False)
    assert ran == []


@pytest.mark.parametrize(
    ("text", "keep_end", "wanted"),
    [
        ("short", False, "short"),
        ("0123456789x", False, "0123456..."),
        ("0123456789x", True, "...456789x"),
        ("ééééééé", False, "ééé..."),
    ],
)
def test_a_text_is_cut_between_characters(text: str, keep_end: bool, wanted: str) -> None:
    assert clip(text, 10, keep_end=keep_end) == wanted
