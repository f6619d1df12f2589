"""Explains in words why a command could not be started, and which signal ended it."""

from __future__ import annotations

import errno
import signal

from schedo.core.model import Failure
from schedo.tasks.shell.payload import ShellPayload


def explain_start(error: Exception, payload: ShellPayload) -> Failure:
    """Return the failure of a command that could not be started."""
    if not isinstance(error, OSError):
        return Failure("spawn-failed", f"the command could not be started: {error}")
    reason = error.strerror or str(error)
    if payload.cwd is not None and error.filename == payload.cwd:
        return Failure("bad-cwd", f"the directory {payload.cwd!r} cannot be entered: {reason}")
    program = payload.shell if isinstance(payload.command, str) else payload.command[0]
    if error.errno == errno.ENOENT:
        message = f"{program!r} was not found, or the interpreter in its first line was not"
        return Failure("not-found", message)
    if error.errno in (errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
        return Failure("not-executable", f"{program!r} cannot be executed: {reason}")
    return Failure("spawn-failed", f"{program!r} could not be started: {reason}")


def name_signal(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
