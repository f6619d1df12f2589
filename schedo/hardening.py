"""Keeps other programs of the same user from reading this process: its memory and its environment.

Commands and handlers often run as the server's user, who may read /proc/<pid>/environ and
/proc/<pid>/mem of his own processes. A process that is not dumpable (Linux) is closed to him: its
files in /proc belong to root, nobody of his can attach to it, and it leaves no core dump. Programs
that it starts are open again. Root may read everything all the same, so the token is also wiped.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

DEBUGGABLE = "SCHEDO_DEBUGGABLE"  # set: a debugger or a profiler of the same user may attach
TOKEN = "SCHEDO_TOKEN"

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4


def seclude(environ: Mapping[str, str] = os.environ) -> None:
    """Close this process to others of its user, and wipe the token from its first environment.

    The token is still in os.environ, where it is read from.
    """
    _wipe(TOKEN)
    if not environ.get(DEBUGGABLE):
        close_process()


def close_process() -> None:
    """Make this process not dumpable, where the system knows such a thing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def is_closed() -> bool:
    """Whether this process is not dumpable; what it starts for itself should be as it is."""
    if sys.platform != "linux":
        return False
    return int(ctypes.CDLL(None).prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)) == 0


def _wipe(name: str) -> None:
    """Overwrite the variable where /proc shows it; unsetting it would leave it there."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(name.encode())
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
