"""Runs attempts of Python tasks: decodes the payload, calls the handler, returns the outcome.

The runner catches everything that the handler raises, SystemExit and RecursionError included. The
outcome of an attempt after its stop is always Stopped, however the handler ends. If the handler
ignores the stop, the runner abandons it after a grace time: the attempt counts as stopped, and the
watcher is notified, because only the end of the process can end such a handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import traceback
from collections.abc import Callable, Coroutine
from time import perf_counter_ns
from typing import Any, NamedTuple

import msgspec

from schedo.core import limits
from schedo.core.leases import AttemptResult, Completed, Failed, Outcome, Released, Snoozed, Stopped
from schedo.core.model import Failure, LeaseKey
from schedo.core.value_limits import fit_delay, fit_failure, fit_result, refuse_result
from schedo.tasks.arguments import BadPayload, encode
from schedo.tasks.current_job import CurrentJob, Discard, Snooze, enter, leave
from schedo.tasks.hooks import Hooks
from schedo.tasks.registry import TaskSpec
from schedo.tasks.runner import AttemptContext
from schedo.tasks.shortage import Shortage, is_shortage
from schedo.tasks.threads import HandlerThreads, call_in_thread

GRACE_S = 5.0
_MESSAGE_BYTES_MAX = 2_048
_TRACEBACK_BYTES_MAX = limits.ERROR_BYTES_MAX - _MESSAGE_BYTES_MAX
_FRAMES_MAX = 50
_DONE = Completed()
_Coroutine = Coroutine[Any, Any, Any]
OnEnd = Callable[[AttemptContext, AttemptResult], object]

log = logging.getLogger("schedo.worker")


class Watcher:
    """Callbacks about the course of attempts; the default does nothing."""

    def may_start(self, key: LeaseKey) -> bool:
        """Return whether the handler may start now; False releases the attempt."""
        return True

    def abandoned(self, key: LeaseKey) -> None:
        """Handle that the handler still runs although its attempt has ended."""


class TaskRunner:
    """Runs the attempts of one task; plain functions run in the given threads."""

    def __init__(
        self,
        task: TaskSpec,
        threads: HandlerThreads,
        *,
        grace_s: float = GRACE_S,
        watcher: Watcher | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.task = task
        self.threads = threads
        self.grace_s = grace_s
        self.watcher = watcher or Watcher()
        self.may_start = None if watcher is None else watcher.may_start
        self.hooks = hooks if hooks is not None and hooks.has_attempt_hooks else None
        self.is_async = task.is_async
        self.shortage = Shortage(f"no thread can be started for task {task.name}")
        self._name = f"schedo {task.name}"
        # Strong references, because the loop holds its tasks weakly.
        self._abandoned: set[asyncio.Task[None]] = set()

    def run(self, context: AttemptContext, task: asyncio.Task[None], on_end: OnEnd) -> _Coroutine:
        """Return the coroutine that runs the attempt; `on_end` gets its result.

        task: runs the coroutine, and has the name of the schedo task meanwhile.
        """
        context.handler = task
        task.set_name(self._name)
        return _Attempt(self, context, on_end).run()

    def abandon(self, context: AttemptContext) -> None:
        """Give up the attempt, whose handler ignores its stop and may never end."""
        log.warning(
            "a handler of task %s has ignored its stop for %g s; it is abandoned",
            self.task.name,
            self.grace_s,
        )
        if context.handler is not None:
            self._abandoned.add(context.handler)
            context.handler.add_done_callback(self._abandoned.discard)
        if not self.is_async:
            self.threads.add_one()  # the next attempt must not wait for the thread of this one
        self.watcher.abandoned(context.lease.key)


class _Attempt(msgspec.Struct, eq=False):
    """One running attempt, which runs the handler and calls `on_end`."""

    _runner: TaskRunner
    _context: AttemptContext
    _on_end: OnEnd
    _is_over: bool = False
    _timer: asyncio.TimerHandle | None = None
    _began_ns: int = 0  # by perf_counter_ns, when the handler began; 0: not yet
    _is_in_thread: bool = False  # a plain function has a thread, or waits for one

    async def run(self) -> None:
        stop = self._context.stop
        outcome: Outcome = Stopped()
        if stop.reason is None:
            stop.listener = self._stop
            token = enter(self._context)
            is_traced = self._context.lease.options.traceparent is not None
            outcome = await (self._run_traced() if is_traced else self._run_handler())
            leave(token)
            stop.listener = None
        if self._timer is not None:
            self._timer.cancel()
        # The task's context variables refer to this context: without the cycle, both go at once.
        self._context.handler = None
        self._end(outcome if stop.reason is None else Stopped())

    def _end(self, outcome: Outcome) -> None:
        if not self._is_over:
            self._is_over = True
            output = self._context.output
            captured = () if output is None else output.end()
            began_ns = self._began_ns
            ran_us = (perf_counter_ns() - began_ns) // 1_000 if began_ns else None
            result = AttemptResult(self._context.lease.key, outcome, captured, ran_us)
            self._on_end(self._context, result)

    def _stop(self) -> None:
        runner, handler = self._runner, self._context.handler
        if handler is not None and not self._is_in_thread:
            handler.cancel()  # a thread cannot be interrupted; it may check current_job()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(runner.grace_s, self._abandon)

    def _abandon(self) -> None:
        self._runner.abandon(self._context)
        self._end(Stopped())

    async def _run_traced(self) -> Outcome:
        """Run the handler in a span, if OpenTelemetry is installed."""
        from schedo.tasks.tracing import begin_span, end_span

        span = begin_span(self._context.lease)
        outcome = await self._run_handler()
        if span is not None:
            end_span(span, outcome)
        return outcome

    async def _run_handler(self) -> Outcome:
        lease, task = self._context.lease, self._runner.task
        try:
            may_start = self._runner.may_start
            if may_start is not None and not may_start(lease.key):
                return Released()
            arguments = task.arguments.read(lease.payload or b"null")
            self._began_ns = perf_counter_ns()
            if self._runner.hooks is not None:
                return await self._run_with_hooks(self._runner.hooks, arguments)
            if self._runner.is_async:
                value = await task.function(**arguments)
                return _DONE if value is None else outcome_from_result(value)
            read_error = functools.partial(outcome_from_error, no_retry=task.no_retry)
            outcome: Outcome | _Coroutine = await self._call_in_thread(
                arguments, _read_value, read_error
            )
            if isinstance(outcome, Coroutine):
                return outcome_from_result(await self._await(outcome))
            return outcome
        except BadPayload as error:
            return _refuse("bad-payload", str(error))
        except BaseException as error:  # SystemExit, for example, must not end the process
            if isinstance(error, GeneratorExit) and not self._is_running():
                raise  # the interpreter discards the task, because its loop is gone
            return outcome_from_error(error, task.no_retry)

    async def _run_with_hooks(self, hooks: Hooks, arguments: dict[str, Any]) -> Outcome:
        """Run the handler inside the application's hooks, which see what it raises."""
        job = CurrentJob(self._context)
        value: Any = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                for around in hooks.around:
                    await stack.enter_async_context(around(job))
                if self._runner.is_async:
                    value = await self._runner.task.function(**arguments)
                else:
                    value = await self._call_plain(arguments)
        except BaseException as error:
            if not job.is_cancelled and not isinstance(error, Snooze | Discard | GeneratorExit):
                await hooks.report(job, error)
            raise
        return value.outcome if isinstance(value, _Decided) else outcome_from_result(value)

    async def _call_plain(self, arguments: dict[str, Any]) -> Any:
        """Call the plain function in a thread; return its value, or raise what it raised."""
        value = await self._call_in_thread(arguments, _Returned, _Raised)
        if isinstance(value, _Raised):
            raise value.error
        if not isinstance(value, _Returned):
            return _Decided(value)
        return await self._await(value.value) if isinstance(value.value, Coroutine) else value.value

    async def _await(self, call: _Coroutine) -> Any:
        """Return the result of a coroutine, which a plain wrapper of an async function returns."""
        if self._context.stop.reason is not None:  # it came while the wrapper ran
            call.close()
            return None
        return await call

    def _is_running(self) -> bool:
        try:
            return asyncio.current_task() is self._context.handler
        except RuntimeError:  # no loop is running
            return False

    async def _call_in_thread(
        self,
        arguments: dict[str, Any],
        read_value: Callable[[Any], Any],
        read_error: Callable[[BaseException], Any],
    ) -> Any:
        """Call the function in a thread; return what the readers make of its value or error.

        If it was not called, return an outcome.
        """
        task = self._runner.task

        def run() -> Any:
            if self._context.stop.reason is not None:  # it waited for a free thread until its stop
                return _DONE
            self._began_ns = perf_counter_ns()  # a thread was free
            # A future cannot carry every exception, so the thread converts it.
            try:
                return read_value(task.function(**arguments))
            except BaseException as error:
                return read_error(error)

        in_context = functools.partial(contextvars.copy_context().run, run)
        shortage = self._runner.shortage
        try:
            ended = call_in_thread(self._runner.threads.submit, in_context)
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            return await shortage.wait(error, self._context.stop)
        shortage.end()
        self._is_in_thread = True
        try:
            return await ended
        finally:
            self._is_in_thread = False


class _Returned(NamedTuple):
    """What a plain function returned."""

    value: Any


class _Raised(NamedTuple):
    """What a plain function raised."""

    error: BaseException


class _Decided(NamedTuple):
    """The outcome of an attempt whose function was not called."""

    outcome: Outcome


def _read_value(value: Any) -> Outcome | _Coroutine:
    return value if isinstance(value, Coroutine) else outcome_from_result(value)


def outcome_from_result(value: Any) -> Outcome:
    """Convert a handler's return value to the outcome of its attempt."""
    if value is None:
        return _DONE
    if isinstance(value, Snooze | Discard):
        return outcome_from_error(value)
    try:
        result = encode(value)
    except Exception as error:  # the application's own types may run code here
        return refuse_result("result-not-json", f"cannot be written as JSON: {error}")
    return fit_result(result)


def outcome_from_error(
    error: BaseException, no_retry: tuple[type[BaseException], ...] = ()
) -> Outcome:
    """Convert a handler's exception to the outcome of its attempt; never raises."""
    try:
        return _blame(error, no_retry)
    except BaseException as unreadable:  # an exception's class and attributes are user code, too
        kind = type(unreadable).__name__
        message = f"the handler's exception cannot be read: {kind}"
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
    """Cut the text to bytes_max bytes of UTF-8, at its start or its end, without U+0000."""
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
    except BaseException as unreadable:  # an exception's own __str__ is user code
        return f"(its message cannot be read: {type(unreadable).__qualname__})"


def _read_traceback(error: BaseException) -> str | None:
    """Return the end of the traceback, from the handler's first frame on, without schedo's own."""
    frames = frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == __file__:
            frames = frame.tb_next
        frame = frame.tb_next
    try:
        lines = traceback.format_exception(type(error), error, frames, limit=-_FRAMES_MAX)
    except Exception:  # no memory, no stack, or a bad __str__; the failure keeps type and message
        return None
    return clip("".join(lines), _TRACEBACK_BYTES_MAX, keep_end=True)
