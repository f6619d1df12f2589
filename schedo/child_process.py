"""A handle of one child process in the event loop; a pidfd reports its end.

The server uses it for its child processes and its spawner. Commands are children of the spawner
(tasks/shell/spawner.py).
Rule: the child is reaped last. Until then its pid, which is also its group's, cannot belong to
another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading


class ChildHandle:
    """A running child process, which leads its own process group."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        """Kill the process and raise RuntimeError if it needs a thread, and none can be started."""
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._pidfd: int | None = None
        self._is_abandoned = False
        self.ended: asyncio.Future[None] = self._loop.create_future()  # the leader has exited
        try:
            self._watch()
        except RuntimeError:
            popen.kill()
            popen.wait()
            raise

    @property
    def pid(self) -> int:
        return self._popen.pid

    def signal_group(self, number: signal.Signals) -> None:
        """Send the signal to the whole group, unless the child has been reaped."""
        if self._popen.returncode is None:
            # ProcessLookupError, or PermissionError when the rest of the group runs as another
            # user.
            with contextlib.suppress(OSError):
                os.killpg(self._popen.pid, number)

    def reap(self) -> int:
        """Reap the child, which must have ended; return its exit code or its negated signal."""
        status = self._popen.wait()
        self._close()
        return status

    def abandon(self, wait_s: float = 0.0) -> None:
        """Kill the group now; reap the child here if it ends within wait_s, else when it ends."""
        self.signal_group(signal.SIGKILL)
        self._is_abandoned = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(wait_s)
            self._on_end()  # this closes the pidfd, so no other event reports the end

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):  # not Linux, Linux before 5.3, or no free descriptors
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
    """Return a descriptor of an unnamed file with the data; unlike a pipe it needs no writer."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("schedo-data", os.MFD_CLOEXEC)
    else:
        import tempfile  # it takes half a megabyte with what it imports

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


def describe_exit(status: int) -> str:
    """Describe how a process ended, from its exit code or its negated signal number."""
    if status >= 0:
        return f"the process exited with code {status}"
    try:
        return f"the process was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"the process was killed by signal {-status}"
