"""The old process of an upgrade, as the new one sees it.

When the link to it ends early, the old process has died: this one then takes its place as a standby
does, with the listeners that it has got at the beginning.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

from schedo.handover.command import VARIABLE
from schedo.handover.link import Link, LinkLost, close_all
from schedo.handover.listeners import ListenerPair
from schedo.handover.messages import (
    Activated,
    BadMessage,
    Failed,
    Frozen,
    Hello,
    Listeners,
    Locks,
    Ready,
    UpgradeFailed,
    encode,
)
from schedo.handover.steps import Step, log_step
from schedo.version import __version__

_LOCKS = 2  # of the lock file and of the database


class Predecessor:
    """The server that this process replaces."""

    def __init__(self, sock: socket.socket, stderr: int) -> None:
        """stderr: the true standard error; until `speak` it is a file of the old process."""
        self._socket = sock
        self._stderr: int | None = stderr
        self._link: Link | None = None
        self.worker = ""  # its name as a worker, once it is frozen
        self.older: dict[str, int] = {}  # the pids of older processes, by such a name

    @property
    def link(self) -> Link:
        """The link, once the event loop runs."""
        if self._link is None:
            self._link = Link(self._socket)
        return self._link

    @property
    def pid(self) -> int:
        return self.link.peer.pid

    def refuse(self, error: Exception) -> None:
        """Report why this process cannot replace the server; harmless if that has ended."""
        try:
            self._socket.sendmsg([encode(Failed(str(error) or repr(error)))])
        except OSError:
            return  # it has the end of this process as the reason, or it has ended itself

    def speak(self) -> None:
        """Write to the true standard error from now on, beginning with what was written so far."""
        if self._stderr is None:
            return
        with contextlib.suppress(OSError):
            os.write(self._stderr, os.pread(2, os.fstat(2).st_size, 0))
        os.dup2(self._stderr, 2)
        os.close(self._stderr)
        self._stderr = None

    async def introduce(self, schema: int, store: str) -> ListenerPair:
        """Introduce this process, and return the listening sockets of the server."""
        hello = Hello(
            role="successor",
            version=__version__,
            schema=schema,
            pid=os.getpid(),
            store=store,
            takes_grpc=True,
        )
        self.link.send(hello)
        return ListenerPair.take(*await self.link.expect_descriptors(Listeners))

    def report_ready(self) -> None:
        """Report that only the store is missing."""
        self.link.send(Ready())

    async def receive_locks(self) -> tuple[Locks, int, int]:
        """Wait for the locks; return their descriptors, of the lock file and of the database."""
        message, descriptors = await self.link.expect_descriptors(Locks)
        if len(descriptors) != _LOCKS:
            close_all(descriptors)
            raise BadMessage(f"{len(descriptors)} locks were sent, and a store has {_LOCKS}")
        lock, database = descriptors
        return message, lock, database

    async def wait_frozen(self) -> Frozen | None:
        """Wait until the server has closed the store; return None if it has died instead."""
        try:
            frozen = await self.link.expect(Frozen)
        except LinkLost:
            return None
        self.worker, self.older = frozen.worker, frozen.older
        return frozen

    def note_opened(self) -> None:
        """Note that this process has opened the store, under a new epoch."""
        log_step(Step.OPENED)

    def report_active(self, activated: Activated) -> None:
        """Report that this server has the place of the old one, and close the link.

        Raise UpgradeFailed if the old one has given up to wait for this: it kills this process, and
        opens its store again. If it has died in the meantime, it needs no report.
        """
        try:
            self.link.send(activated)
        except LinkLost:
            if self.link.is_alive:
                raise UpgradeFailed("the old process takes its store back") from None
        finally:
            self.link.close()


def take_predecessor(environ: MutableMapping[str, str]) -> Predecessor | None:
    """Return the old process if this one was started by an upgrade.

    Remove its variable, so that no child gets it.
    """
    numbers = environ.pop(VARIABLE, "").split(",")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    link, stderr = map(int, numbers)
    for descriptor in (link, stderr):
        os.set_inheritable(descriptor, False)
    return Predecessor(socket.socket(fileno=link), stderr)
