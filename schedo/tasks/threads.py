"""Calls in threads, even while the machine cannot start new threads.

An executor queues a call before it starts a thread for it. If it cannot start one, the call stays
in the queue, and a thread that becomes free would run it. Here such a call does not run any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from schedo.tasks.shortage import is_shortage

T = TypeVar("T")
Submit = Callable[[Callable[[], None]], Any]


class HandlerThreads(ThreadPoolExecutor):
    """The threads of plain functions: one for each attempt that a worker runs at a time."""

    def __init__(self, count: int) -> None:
        super().__init__(count, thread_name_prefix="schedo")

    def add_one(self) -> None:
        """Let one more thread run, because an abandoned function may keep one forever."""
        self._max_workers += 1
        with contextlib.suppress(RuntimeError):  # no thread can be started, or the pool is closed
            self.submit(_do_nothing)  # an executor starts a thread only for a new call


def _do_nothing() -> None:
    """Return."""


def call_in_thread(submit: Submit, call: Callable[[], T]) -> asyncio.Future[T]:
    """Give the call to a thread through `submit`, an executor's method; return its future result.

    Raise RuntimeError if no thread can be started; the call does not run then, nor does it when
    the future is cancelled before a thread is free.
    """
    queued = _QueuedCall(call)
    try:
        submit(queued.run)
    except RuntimeError:
        if queued.claim():
            raise
        # Otherwise a thread has become free meanwhile, and runs the call.
    return queued.ended


class _QueuedCall(Generic[T]):
    """A call that at most one thread runs, and its future result."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._unclaimed = [True]
        self.ended: asyncio.Future[T] = self._loop.create_future()

    def claim(self) -> bool:
        """Return whether this is the first claim; only after it, the call may run."""
        try:
            return self._unclaimed.pop()  # of several threads, one gets the item
        except IndexError:
            return False

    def run(self) -> None:
        if not self.claim() or self.ended.cancelled():
            return
        try:
            value = self._call()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._settle, self.ended.set_exception, error)
        else:
            self._loop.call_soon_threadsafe(self._settle, self.ended.set_result, value)

    def _settle(self, set_value: Callable[[Any], None], value: object) -> None:
        if not self.ended.done():
            set_value(value)


def call_in_some_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Run the call in a thread of the loop's executor; at once if no thread can be started."""
    loop = asyncio.get_running_loop()
    try:
        return call_in_thread(functools.partial(loop.run_in_executor, None), call)
    except RuntimeError as error:
        if not is_shortage(error):
            raise
    ended: asyncio.Future[T] = loop.create_future()
    try:
        ended.set_result(call())
    except Exception as error:
        ended.set_exception(error)
    return ended
