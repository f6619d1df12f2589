"""A supervisor as systemd is one: it holds the listening socket, and hears the service's messages.

It starts programs with LISTEN_FDS, LISTEN_PID and NOTIFY_SOCKET, as systemd's manual says.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

# LISTEN_PID is the program's own id, which only the program itself knows before it starts.
_LAUNCH = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 100) for text in sys.argv[1].split(",") if text]
for number, fd in enumerate(fds, start=3):
    os.dup2(fd, number, inheritable=True)
    os.close(fd)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""
_MESSAGE_BYTES = 4_096
_CREDENTIALS = struct.Struct("3i")  # ucred of unix(7): pid, uid, gid
_BESIDE_BYTES = socket.CMSG_SPACE(16 * array("i").itemsize) + socket.CMSG_SPACE(_CREDENTIALS.size)


def _read_beside(beside: list[tuple[int, int, bytes]]) -> tuple[list[int], str]:
    """Return the descriptors beside a message, and the pid of its sender."""
    fds, sender = array("i"), ""
    for _, kind, data in beside:
        if kind == socket.SCM_RIGHTS:
            fds.frombytes(data)
        elif kind == socket.SCM_CREDENTIALS:
            sender = str(_CREDENTIALS.unpack(data)[0])
    return list(fds), sender


class Supervisor:
    """Holds a listener and a descriptor store, and starts programs; it restarts nothing."""

    def __init__(self, directory: Path, *, has_store: bool = True) -> None:
        """has_store: it keeps the sockets that a service sends for its descriptor store."""
        self._has_store = has_store
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4_096)
        self.port: int = self.listener.getsockname()[1]
        self.stored: list[socket.socket] = []
        self._notify_path = directory / "notify.sock"
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(self._notify_path))
        self._notify.setblocking(False)
        self._notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._messages: list[dict[str, str]] = []
        self._log = directory / "service.log"

    def start(
        self,
        *words: str,
        sockets: Sequence[socket.socket] | None = None,
        name: str = "schedo.socket",
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Start `python WORDS…` with the sockets, by default the listener, as descriptors 3 and up.

        name: of each of the sockets in LISTEN_FDNAMES.
        """
        passed = [self.listener] if sockets is None else sockets
        hidden = ("SCHEDO_", "LISTEN_", "NOTIFY_", "WATCHDOG_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        given = {"LISTEN_FDS": str(len(passed)), "NOTIFY_SOCKET": str(self._notify_path)}
        given["LISTEN_FDNAMES"] = ":".join([name] * len(passed))
        fds = [sock.fileno() for sock in passed]
        numbers = ",".join(map(str, fds))
        launcher = [sys.executable, "-S", "-c", _LAUNCH, numbers, sys.executable, *words]
        with self._log.open("a") as log:
            return subprocess.Popen(
                launcher,
                cwd=self._log.parent,
                env=kept | given | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                pass_fds=fds,
            )

    @property
    def messages(self) -> list[dict[str, str]]:
        """All messages so far, each as its fields; SENDER is the pid of the process."""
        self.read()
        return self._messages

    def read(self) -> None:
        """Read the messages that have arrived; the sockets for the store are in `stored`."""
        with suppress(BlockingIOError):
            while True:
                data, beside, _, _ = self._notify.recvmsg(_MESSAGE_BYTES, _BESIDE_BYTES)
                fields = dict(line.split("=", 1) for line in data.decode().splitlines())
                fds, fields["SENDER"] = _read_beside(beside)
                if "FDSTOREREMOVE" in fields:
                    self._drop_stored()
                self.stored += [socket.socket(fileno=fd) for fd in fds]
                if not self._has_store:
                    self._drop_stored()
                self._messages.append(fields)

    def _drop_stored(self) -> None:
        for sock in self.stored:
            sock.close()
        self.stored.clear()

    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.listener.close()
        self._drop_stored()
        self._notify.close()
