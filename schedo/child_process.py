"""A child process of the server itself, and knowing when it has ended: a pidfd in the loop tells.

Commands are not such: the starter has them (commands.py).
Rule: the child is reaped last. Until then its pid, which is also its group's, cannot become another
process's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading


class ChildHandle:
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

    def abandon(self, wait_s: float = 0.0) -> None:
        """Kill the group now and reap it, here within wait_s or else whenever it ends."""
        self.signal_group(signal.SIGKILL)
        self._is_abandoned = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(wait_s)
            self._on_end()  # the pidfd is closed here, so nothing else would report the end

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):  # not Linux, before 5.3, or out of descriptors
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_end)

    def _wait_in_thread(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # abandon() has reaped it
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


def write_unnamed_file(data: bytes) -> int:
    """Return a descriptor of a file with the data: unlike a pipe it need not be fed."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("schedo-data", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
