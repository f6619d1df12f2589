"""The end of an active server that is stuck: SIGKILL, and never to another process.

The process is named three times: by the kernel as the one that listens on the control socket, by
the pidfd that is opened while the connection lives, so that a pid that is used again is never
killed, and by the text in the lock file, so that only the holder of the store is killed.
"""

from __future__ import annotations

import os
import select
import signal

from schedo.errors import SchedoError
from schedo.handover.link import Link
from schedo.store.sqlite.lock import read_holder


class CannotFence(SchedoError):
    """The active server cannot be killed from here."""

    code = "cannot-fence"


class Fence:
    """The process at the other end of a link, held by a pidfd."""

    def __init__(self, link: Link, lock_path: str) -> None:
        """Raise CannotFence if the process cannot be seen from here, or the link has ended."""
        self.pid = link.peer.pid
        self._lock_path = lock_path
        if self.pid <= 0:
            raise CannotFence("the active server is in another container, or its pid is hidden")
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            raise CannotFence(f"pid {self.pid} cannot be opened: {error.strerror}") from error
        if not link.is_alive:  # it may have ended before the pidfd was opened
            self.close()
            raise CannotFence("the active server has just ended")

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self._pidfd)

    def kill(self) -> None:
        """Kill the process if it holds the store; raise CannotFence if it does not, or cannot."""
        holder = read_holder(self._lock_path)
        if holder != self.pid:
            raise CannotFence(
                f"the lock file names pid {holder}, and pid {self.pid} answers at the control"
                " socket; perhaps it is in another container"
            )
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # it has ended meanwhile
        except OSError as error:
            raise CannotFence(f"pid {self.pid} cannot be killed: {error.strerror}") from error

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))
