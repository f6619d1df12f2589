"""When a runner itself goes wrong: its attempt fails, and whoever runs it goes on."""

from __future__ import annotations

import asyncio

from schedo.core.leases import AttemptResult, Failed
from schedo.core.model import Failure, LeaseKey
from schedo.core.value_limits import fit_report


def blame_runner(key: LeaseKey, error: BaseException) -> AttemptResult:
    """Return the report of an attempt whose runner has a bug."""
    failure = Failure("runner-error", f"{type(error).__name__}: {error}")
    return fit_report(AttemptResult(key, Failed(failure)))


def is_cancelled() -> bool:
    """Whether the running task was cancelled from outside; a CancelledError may also be raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
