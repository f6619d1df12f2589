"""A process that a handler forks while another thread has a lock of its worker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.tasks.progress import ProgressThrottle
from schedo.tasks.task_output import TaskOutput
from tests.worker.calls import make_context

HANG_S = 5  # the kernel ends a process that waits for the lock


def print_line() -> tuple[Any, Callable[[], None]]:
    output = TaskOutput()
    return output, lambda: output.keep(make_context({}, "talk"), "stdout", "a line\n")


def report_progress() -> tuple[Any, Callable[[], None]]:
    progress = ProgressThrottle(lambda key, update: None)
    return progress, lambda: progress.report(LeaseKey(1, 1, 1), ProgressUpdate(50.0))


def call_in_a_fork(call: Callable[[], None]) -> int:
    """Return the exit code of a forked process that makes the call."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANG_S)
        call()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("make", [print_line, report_progress])
async def test_a_forked_process_does_not_wait_for_a_lock_that_nothing_releases(
    make: Callable[[], tuple[Any, Callable[[], None]]],
) -> None:
    owner, call = make()

    with owner._lock:
        code = await asyncio.to_thread(call_in_a_fork, call)

    assert code == 0
