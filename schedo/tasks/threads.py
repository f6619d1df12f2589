"""Calls in threads, even while the machine cannot start new threads.

An executor queues a call before it starts a thread for it. If it cannot start one, the call stays
in the queue, and a thread that becomes free would run it. Here such a call does not run any more.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from schedo.tasks.shortage import is_shortage

T = TypeVar("T")
Submit = Callable[[Callable[[], None]], Any]


def call_in_thread(submit: Submit, call: Callable[[], T]) -> asyncio.Future[T]:
    """Give the call to a thread through `submit`, an executor's method; return its future result.

    Raise RuntimeError if no thread can be started; the call does not run then, nor does it when
    the future is cancelled before a thread is free.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    unclaimed = [ended]  # emptied by the thread that runs the call, or to keep it from running

    def settle(set_value: Callable[[Any], None], value: object) -> None:
        if not ended.done():
            set_value(value)

    def run() -> None:
        try:
            claimed = unclaimed.pop()
        except IndexError:
            return
        if claimed.cancelled():
            return
        try:
            value = call()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, ended.set_exception, error)
        else:
            loop.call_soon_threadsafe(settle, ended.set_result, value)

    try:
        submit(run)
    except RuntimeError:
        try:
            unclaimed.pop()
        except IndexError:  # a thread has become free meanwhile, and runs the call
            return ended
        raise
    return ended


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
