"""Starting a command, and knowing when it has ended.

The child leads its own session, has only descriptors 0, 1 and 2, umask 077 and no core dumps.
subprocess.Popen does the start (vfork, so the server's size does not matter): as fast as
posix_spawn, but it can change the directory and close descriptors; uvloop's own way is three times
slower. A pidfd in the loop tells of the end.
Rule: the child is reaped last. Until then its pid, which is also its group's, cannot become another
process's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_UMASK = 0o077
_IS_LINUX = sys.platform == "linux"


class Command(NamedTuple):
    """What to start; env is the whole environment."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    stdin: bytes | None = None


class Process:
    """One running child, the leader of its own session and group."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._pidfd: int | None = None
        self._is_abandoned = False
        self.ended: asyncio.Future[None] = self._loop.create_future()  # the leader has exited
        self._watch()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def signal_group(self, number: signal.Signals) -> None:
        """Send the signal to the whole group, if it has not been reaped."""
        if self._popen.returncode is None:
            # ProcessLookupError, or PermissionError when all that is left of the group runs as
            # another user.
            with contextlib.suppress(OSError):
                os.killpg(self._popen.pid, number)

    def reap(self) -> int:
        """Return the exit code, or minus the signal; only after it has ended."""
        status = self._popen.wait()
        self._close()
        return status

    def abandon(self) -> None:
        """Kill the group now and reap it whenever it ends; for when nobody can wait for it."""
        self.signal_group(signal.SIGKILL)
        self._is_abandoned = True
        if self.ended.done():
            self.reap()

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):  # not Linux, before 5.3, or out of descriptors
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_end)

    def _wait_in_thread(self) -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._on_end)

    def _on_end(self) -> None:
        self._close()
        if not self.ended.done():
            self.ended.set_result(None)
        if self._is_abandoned:
            self.reap()

    def _close(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def spawn(command: Command, stdout: int, stderr: int) -> Process:
    """Start the command; raise OSError or ValueError if that cannot be done."""
    stdin = _open_stdin(command.stdin)
    try:
        popen = subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=command.env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            close_fds=True,
            start_new_session=True,
            umask=_UMASK,
        )
    finally:
        if stdin >= 0:
            os.close(stdin)
    _forbid_core(popen.pid)
    return Process(popen)


def _open_stdin(data: bytes | None) -> int:
    if data is None:
        return subprocess.DEVNULL
    # A file instead of a pipe: nobody has to feed it, and the child reads it to its end.
    descriptor = _create_unnamed_file()
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _create_unnamed_file() -> int:
    if _IS_LINUX:
        return os.memfd_create("stdin", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _forbid_core(pid: int) -> None:
    # A moment after the start, because a limit of our own, that it could inherit, is the host's to
    # set.
    if _IS_LINUX:
        with contextlib.suppress(OSError):  # already gone, or a set-user-id program
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
