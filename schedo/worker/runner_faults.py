"""The handling of a bug in a runner: its attempt fails, and the worker continues."""

from __future__ import annotations

import asyncio

from schedo.core.leases import AttemptResult, Failed
from schedo.core.model import Failure, LeaseKey
from schedo.core.value_limits import fit_report


def blame_runner(key: LeaseKey, error: BaseException) -> AttemptResult:
    """Return the result of an attempt whose runner raised an exception."""
    failure = Failure("runner-error", f"{type(error).__name__}: {error}")
    return fit_report(AttemptResult(key, Failed(failure)))


def is_cancelled() -> bool:
    """Return whether the running asyncio task was cancelled from outside.

    A CancelledError alone does not say so, because a runner may raise one, too.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
