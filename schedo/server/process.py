"""The set-up of the server's process: its memory, its limits, and its garbage collector."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import resource

from schedo.descriptors import grow_table

LARGE_BUFFER_BYTES = 65_536
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def limit_freed_memory() -> None:
    """Return large buffers to the system when they are freed, and share one arena among threads.

    It must run before there is a second thread. glibc raises its mmap threshold to the size of the
    largest freed buffer, so the process would keep the memory of one large request forever. It also
    gives each thread an arena of its own, so each thread of the store would keep a megabyte that no
    other thread can use.
    """
    with contextlib.suppress(AttributeError, OSError):  # another libc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_TRIM_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def prepare_process() -> None:
    """Set the mask for new files, the limits, the descriptor table and the traceback of a crash."""
    faulthandler.enable()  # a crash by a signal such as SIGBUS leaves a traceback, too
    os.umask(0o077)
    _raise_descriptor_limit()
    grow_table()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold tokens and payloads


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit, because each open poll takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def spare_collector() -> None:
    """Let the garbage collector scan little, and seldom.

    All objects loaded so far live until the end, so it need not scan them again. Requests leave no
    reference cycles, and a full collection stops the loop for milliseconds. The cycles of other
    code must not pile up, though, so the thresholds start a collection after at most about 50,000
    new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 20)
