"""The table of the process's descriptors, whose length and order cost time in Linux."""

from __future__ import annotations

import fcntl
import os
import resource
from contextlib import suppress

# A table of this length takes 33 kB, and most servers need no longer one.
_LENGTH = 4_096
_RESERVED = 10  # the highest numbers of the table, for locks
_first_reserved = 0  # of them; before the table has its length, any number will do


def grow_table() -> None:
    """Let the table have its length now; it must run before there is a second thread.

    In a process with threads, Linux waits for all processors when it makes a table longer: the
    65th, the 129th, the 257th ... connection would stop the event loop for 12 ms.
    """
    global _first_reserved  # of the process, as the table itself
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = min(limit, _LENGTH) - _RESERVED
    with open(os.devnull) as file, suppress(OSError):  # there is no limit
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, lowest))
        _first_reserved = lowest


def duplicate_above(descriptor: int) -> int:
    """Return a duplicate of the descriptor, in a long table above those of the connections.

    When a process dies, Linux closes its open files from the highest number to the lowest. With
    400 connections, another process gets a lock that has such a number 2.5 ms sooner.
    """
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _first_reserved)
    except OSError:  # all of these numbers are in use
        return os.dup(descriptor)
