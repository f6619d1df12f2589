"""The event loop of the server and the workers, and the end of their processes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

END_S = 1.0  # for tasks and threads of an application that go on when its worker has ended


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop, or asyncio's own if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:  # not available on this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Wait until the work has ended; a cancel of the caller is raised only then."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def end_loop(runner: asyncio.Runner, threads: ThreadPoolExecutor) -> bool:
    """Cancel what still runs in the loop, and close it; return whether everything has ended.

    threads: the default executor of the loop. If a handler ignores its cancellation, or blocks a
    thread, the loop stays open after END_S: its close would wait for the handler.
    """
    loop = runner.get_loop()
    until = loop.time() + END_S
    has_ended = runner.run(_cancel_rest())
    threads.shutdown(wait=False, cancel_futures=True)
    for thread in _list_threads():
        thread.join(max(0.0, until - loop.time()))
    has_ended = has_ended and not _list_threads()
    if has_ended:
        runner.close()
    return has_ended


async def _cancel_rest() -> bool:
    """Cancel the other tasks of the loop; return whether they have ended in END_S."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if not rest:
        return True
    _, going_on = await asyncio.wait(rest, timeout=END_S)
    return not going_on


def _list_threads() -> list[threading.Thread]:
    """Return the other threads for which the interpreter would wait at its end."""
    others = (each for each in threading.enumerate() if each is not threading.current_thread())
    return [thread for thread in others if not thread.daemon]


def end_process(code: int, *, at_once: bool = False) -> NoReturn:
    """End the process with this code, even if a task or a DNS lookup still runs in a thread.

    at_once: without what the interpreter does at its end, because tasks of a loop still run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if at_once or _list_threads():
        os._exit(code)
    sys.exit(code)
