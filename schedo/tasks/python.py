"""Runs one attempt of a Python task: read the payload, call the handler, say how it ended.

Whatever the handler raises is contained here, SystemExit and RecursionError included. A handler
that was told to stop has stopped, however it ends after that. One that goes on regardless is
abandoned after a grace time: its attempt counts as stopped, and its watcher hears of it, because
only the end of the process ends the handler.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

import msgspec

from schedo.core import limits
from schedo.core.leases import AttemptResult, Completed, Failed, Outcome, Released, Snoozed, Stopped
from schedo.core.model import Failure, LeaseKey
from schedo.core.value_limits import fit_delay, fit_failure, fit_result, refuse_result
from schedo.tasks.arguments import BadPayload, encode_custom
from schedo.tasks.current_job import Discard, Snooze, enter
from schedo.tasks.registry import TaskSpec
from schedo.tasks.runner import AttemptContext

GRACE_S = 5.0
_MESSAGE_BYTES_MAX = 2_048
_TRACEBACK_BYTES_MAX = limits.ERROR_BYTES_MAX - _MESSAGE_BYTES_MAX
_FRAMES_MAX = 50
_DONE = Completed()
_Coroutine = Coroutine[Any, Any, Any]

log = logging.getLogger("schedo.workers")


class Watcher:
    """Hears what happens to attempts beside their results; this one does not mind."""

    def may_start(self, key: LeaseKey) -> bool:
        """Hear that the handler is about to run; False hands the attempt back instead."""
        return True

    def abandoned(self, key: LeaseKey) -> None:
        """Hear that the handler runs on though its attempt is over."""


class TaskRunner:
    """Runs attempts of one task; plain functions run in the given threads."""

    def __init__(
        self,
        task: TaskSpec,
        threads: Executor,
        *,
        grace_s: float = GRACE_S,
        watcher: Watcher | None = None,
    ) -> None:
        self.task = task
        self.threads = threads
        self.grace_s = grace_s
        self.watcher = watcher or Watcher()
        self.is_async = task.is_async
        self._name = f"schedo {task.name}"
        self._attempts: set[_Attempt] = set()  # hold their tasks; the loop itself does it weakly

    async def __call__(self, call: AttemptContext) -> AttemptResult:
        """Return how the attempt ended."""
        ended: asyncio.Future[AttemptResult] = asyncio.get_running_loop().create_future()

        def end(report: AttemptResult) -> None:
            if not ended.done():
                ended.set_result(report)

        handler = self.begin(call, end)
        try:
            return await ended
        except asyncio.CancelledError:
            handler.cancel()
            raise

    def begin(
        self, call: AttemptContext, on_end: Callable[[AttemptResult], None]
    ) -> asyncio.Task[None]:
        """Run the attempt in a task of its own, and return that; `on_end` hears how it ended."""
        attempt = _Attempt(self, call, on_end)
        self._attempts.add(attempt)
        loop = asyncio.get_running_loop()
        attempt.handler = loop.create_task(attempt.run(), name=self._name)
        return attempt.handler

    def forget(self, attempt: _Attempt) -> None:
        """Let go of an attempt whose handler has ended."""
        self._attempts.discard(attempt)


class _Attempt:
    """One attempt on its way: a single task, which runs the handler and says how it ended."""

    __slots__ = ("_call", "_is_over", "_on_end", "_runner", "_timer", "handler")

    def __init__(
        self, runner: TaskRunner, call: AttemptContext, on_end: Callable[[AttemptResult], None]
    ) -> None:
        self._runner = runner
        self._call = call
        self._on_end = on_end
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self.handler: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run the handler to its end."""
        stop = self._call.stop
        outcome: Outcome = Stopped()
        if stop.reason is None:
            stop.listener = self._stop
            outcome = await self._handle()
            stop.listener = None
        if self._timer is not None:
            self._timer.cancel()
        self._runner.forget(self)
        self._end(outcome if stop.reason is None else Stopped())

    def _end(self, outcome: Outcome) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_end(AttemptResult(self._call.lease.key, outcome))

    def _stop(self) -> None:
        runner = self._runner
        if runner.is_async and self.handler is not None:
            self.handler.cancel()  # a thread cannot be interrupted; it can look at current_job()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(runner.grace_s, self._abandon)

    def _abandon(self) -> None:
        runner = self._runner
        log.warning(
            "a handler of task %s ignored its stop for %g s and is abandoned",
            runner.task.name,
            runner.grace_s,
        )
        runner.watcher.abandoned(self._call.lease.key)
        self._end(Stopped())

    async def _handle(self) -> Outcome:
        lease, task = self._call.lease, self._runner.task
        try:
            if not self._runner.watcher.may_start(lease.key):
                return Released()
            arguments = task.arguments.read(lease.payload or b"null")
            enter(self._call)
            if self._runner.is_async:
                return outcome_from_result(await task.function(**arguments))
            outcome = await self._call_in_thread(arguments)
            # A plain wrapper around an async function hands out its coroutine.
            return outcome_from_result(await outcome) if isinstance(outcome, Coroutine) else outcome
        except BadPayload as error:
            return _refuse("bad-payload", str(error))
        except BaseException as error:  # SystemExit must not end the process, nor anything the loop
            if isinstance(error, GeneratorExit) and not self._is_running():
                raise  # the task itself is thrown away, with its loop
            return outcome_from_error(error, task.no_retry)

    def _is_running(self) -> bool:
        try:
            return asyncio.current_task() is self.handler
        except RuntimeError:  # there is no loop any more
            return False

    async def _call_in_thread(self, arguments: dict[str, Any]) -> Outcome | _Coroutine:
        task = self._runner.task

        def run() -> Outcome | _Coroutine:
            if self._call.stop.reason is not None:  # all threads were busy until it was too late
                return _DONE
            # A future cannot carry every exception, so the thread itself says what it stands for.
            try:
                value = task.function(**arguments)
                return value if isinstance(value, Coroutine) else outcome_from_result(value)
            except BaseException as error:
                return outcome_from_error(error, task.no_retry)

        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._runner.threads, context.run, run)


def outcome_from_result(value: Any) -> Outcome:
    """Return the outcome that a handler's return value stands for."""
    if isinstance(value, Snooze | Discard):
        return outcome_from_error(value)
    if value is None:
        return _DONE
    try:
        result = msgspec.json.encode(value, enc_hook=encode_custom)
    except Exception as error:  # the application's own types may run code here
        return refuse_result("result-not-json", f"cannot be written as JSON: {error}")
    return fit_result(result)


def outcome_from_error(
    error: BaseException, no_retry: tuple[type[BaseException], ...] = ()
) -> Outcome:
    """Return the outcome that an exception stands for; raise nothing, whatever it is."""
    try:
        return _blame(error, no_retry)
    except BaseException as wrong:  # an exception's class and attributes are user code, too
        message = f"the exception that the handler raised cannot be read: {type(wrong).__name__}"
        return Failed(Failure("unreadable-exception", message))


def _blame(error: BaseException, no_retry: tuple[type[BaseException], ...]) -> Outcome:
    if isinstance(error, Snooze):
        return Snoozed(fit_delay(int(error.delay_us)))
    if isinstance(error, Discard):
        return _refuse("discarded", _read_message(error))
    failure = Failure(
        type(error).__qualname__,
        clip(_read_message(error), _MESSAGE_BYTES_MAX),
        traceback=_read_traceback(error),
    )
    return Failed(fit_failure(failure), retryable=not isinstance(error, no_retry))


def _refuse(kind: str, message: str) -> Outcome:
    return Failed(Failure(kind, clip(message, _MESSAGE_BYTES_MAX)), retryable=False)


def clip(text: str, bytes_max: int, *, keep_end: bool = False) -> str:
    """Return the text as valid UTF-8 of at most bytes_max without U+0000, its start or its end."""
    data = text.encode("utf-8", "replace").replace(b"\0", b"\xef\xbf\xbd")
    if len(data) <= bytes_max:
        return data.decode()
    room = bytes_max - 3
    if keep_end:
        return "..." + data[-room:].decode("utf-8", "ignore")
    return data[:room].decode("utf-8", "ignore") + "..."


def _read_message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as wrong:  # an exception's own __str__ is user code
        return f"(its message cannot be read: {type(wrong).__qualname__})"


def _read_traceback(error: BaseException) -> str | None:
    """Return the end of the traceback, from the handler's own first line on."""
    frames = frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == __file__:
            frames = frame.tb_next
        frame = frame.tb_next
    try:
        lines = traceback.format_exception(type(error), error, frames, limit=-_FRAMES_MAX)
    except Exception:  # out of memory or stack, or a hostile __str__; the type and message remain
        return None
    return clip("".join(lines), _TRACEBACK_BYTES_MAX, keep_end=True)
