"""Keeps other programs of the same user from reading this process's memory and environment.

Commands and handlers often run as the server's user, who may read /proc/<pid>/environ and
/proc/<pid>/mem of that user's processes. A process that is not dumpable (Linux) is protected: its
files in /proc belong to root, no program of the user can attach to it, and it leaves no core dump.
The programs that it starts are dumpable again. Root can still read everything, so the token is also
wiped from the environment.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

DEBUGGABLE = "SCHEDO_DEBUGGABLE"  # set: a debugger or a profiler of the same user may attach
TOKEN = "SCHEDO_TOKEN"

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4


def harden_process(environ: Mapping[str, str] = os.environ) -> None:
    """Protect this process from its user's other programs, and wipe the token from /proc.

    The token stays in os.environ, from which the caller reads it.
    """
    _wipe(TOKEN)
    if not environ.get(DEBUGGABLE):
        make_undumpable()


def make_undumpable() -> None:
    """Make this process not dumpable (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def is_undumpable() -> bool:
    """Return whether this process is not dumpable; its own child processes should be the same."""
    if sys.platform != "linux":
        return False
    return int(ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)) == 0


def _wipe(name: str) -> None:
    """Overwrite the variable in the memory that /proc shows; unsetting would leave it there."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(name.encode())
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
