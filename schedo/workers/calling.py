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
from concurrent.futures import Executor
from typing import Any

import msgspec

from schedo.core import limits
from schedo.core.leases import Completed, Failed, HandedBack, Outcome, Report, Snoozed, Stopped
from schedo.core.model import Failure, LeaseKey
from schedo.workers.arguments import BadPayload, write_foreign
from schedo.workers.contract import Call
from schedo.workers.handling import Discard, Snooze, enter
from schedo.workers.registry import TaskSpec

GRACE_S = 5.0
_MESSAGE_BYTES_MAX = 2_048
_TRACEBACK_BYTES_MAX = limits.ERROR_BYTES_MAX - _MESSAGE_BYTES_MAX
_FRAMES_MAX = 50

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
        self._task = task
        self._threads = threads
        self._grace_s = grace_s
        self._watcher = watcher or Watcher()
        self._abandoned: set[asyncio.Task[Outcome]] = set()  # the loop itself holds tasks weakly

    async def __call__(self, call: Call) -> Report:
        """Return how the attempt ended."""
        handler = asyncio.create_task(self._handle(call), name=f"schedo {self._task.name}")
        stopping = asyncio.create_task(call.stop.wait())
        try:
            await asyncio.wait((handler, stopping), return_when=asyncio.FIRST_COMPLETED)
            if handler.done() and call.stop.reason is None:
                outcome = handler.result()
            else:
                outcome = await self._stop(handler, call)
        except asyncio.CancelledError:
            handler.cancel()
            raise
        finally:
            stopping.cancel()
        return Report(call.lease.key, outcome)

    async def _stop(self, handler: asyncio.Task[Outcome], call: Call) -> Outcome:
        if self._task.is_async:  # a thread cannot be interrupted; it can only look at current_job()
            handler.cancel()
        await asyncio.wait((handler,), timeout=self._grace_s)
        if not handler.done():
            self._abandon(handler, call.lease.key)
        return Stopped()

    def _abandon(self, handler: asyncio.Task[Outcome], key: LeaseKey) -> None:
        log.warning(
            "a handler of task %s ignored its stop for %g s and is abandoned",
            self._task.name,
            self._grace_s,
        )
        self._abandoned.add(handler)
        handler.add_done_callback(self._abandoned.discard)
        self._watcher.abandoned(key)

    async def _handle(self, call: Call) -> Outcome:
        if not self._watcher.may_start(call.lease.key):
            return HandedBack()
        try:
            arguments = self._task.arguments.read(call.lease.payload or b"null")
            enter(call)
            if self._task.is_async:
                value = await self._task.function(**arguments)
            else:
                value = await self._call_in_thread(call, arguments)
            return settle(value)
        except BadPayload as error:
            return _refuse("bad-payload", str(error))
        except GeneratorExit:
            raise
        except BaseException as error:  # SystemExit must not end the process, nor anything the loop
            return blame(error, self._task.no_retry)

    async def _call_in_thread(self, call: Call, arguments: dict[str, Any]) -> Any:
        def run() -> Any:
            if call.stop.reason is not None:  # all threads were busy until it was too late
                return None
            try:
                return self._task.function(**arguments)
            except StopIteration as error:  # a future cannot carry it
                raise RuntimeError("the handler raised StopIteration") from error

        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(self._threads, context.run, run)
        # A plain wrapper around an async function hands out its coroutine.
        return await value if asyncio.iscoroutine(value) else value


def settle(value: Any) -> Outcome:
    """Return the outcome that a handler's return value stands for."""
    if isinstance(value, Snooze | Discard):
        return blame(value)
    if value is None:
        return Completed()
    try:
        result = msgspec.json.encode(value, enc_hook=write_foreign)
    except Exception as error:  # the application's own types may run code here
        message = f"the task ran, but its result cannot be written as JSON: {error}"
        return _refuse("result-not-json", message)
    if len(result) > limits.RESULT_BYTES_MAX:
        message = (
            f"the task ran, but its result takes {len(result)} bytes as JSON; "
            f"at most {limits.RESULT_BYTES_MAX} are kept"
        )
        return _refuse("result-too-large", message)
    return Completed(result)


def blame(error: BaseException, no_retry: tuple[type[BaseException], ...] = ()) -> Outcome:
    """Return the outcome that an exception stands for."""
    if isinstance(error, Snooze):
        return Snoozed(error.delay_us)
    if isinstance(error, Discard):
        return _refuse("discarded", _read_message(error))
    failure = Failure(
        type(error).__qualname__,
        clip(_read_message(error), _MESSAGE_BYTES_MAX),
        traceback=_read_traceback(error),
    )
    return Failed(failure, retryable=not isinstance(error, no_retry))


def _refuse(kind: str, message: str) -> Outcome:
    return Failed(Failure(kind, clip(message, _MESSAGE_BYTES_MAX)), retryable=False)


def clip(text: str, bytes_max: int, *, keep_end: bool = False) -> str:
    """Return the text as valid UTF-8 of at most bytes_max, its start or its end."""
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return data.decode()
    room = bytes_max - 3
    if keep_end:
        return "..." + data[-room:].decode("utf-8", "ignore")
    return data[:room].decode("utf-8", "ignore") + "..."


def _read_message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as wrong:  # an exception's own __str__ is user code
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
