"""Real `schedo worker` processes, and a proxy to the server that a test can interrupt."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.e2e import ports
from tests.e2e.server import DEADLINE_S, Server, eventually


class WorkerProcess:
    """A `schedo worker` process."""

    def __init__(self, server: Server, name: str, *arguments: str, url: str = "") -> None:
        self.name = name
        self._server = server
        self._log = server.directory / f"{name}.log"
        command = [sys.executable, "-m", "schedo", "worker", "--name", name]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SCHEDO_")}
        environment["XDG_STATE_HOME"] = str(server.directory)
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, "--server", url or server.url, *arguments],
                cwd=server.directory,
                env=environment,
                stderr=log,
            )

    def wait_seen(self) -> None:
        """Return when the server knows the worker."""
        eventually(lambda: self._server.ask("GET", self._path)[0] == 200, f"worker: {self.log()}")

    @property
    def _path(self) -> str:
        return f"/v1/workers/{self.name}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(DEADLINE_S)

    def log(self) -> str:
        return self._log.read_text()


@contextlib.contextmanager
def worker(server: Server, name: str, *arguments: str, url: str = "") -> Iterator[WorkerProcess]:
    """Run a worker that has registered with the server; kill it at the end."""
    process = WorkerProcess(server, name, *arguments, url=url)
    try:
        process.wait_seen()
        yield process
    finally:
        process.process.kill()
        process.wait()


def find_port() -> str:
    """Return a free port, for a server that restarts at the same address, as an option."""
    return str(ports.find_port())


class Wire:
    """A TCP proxy to the server that can be interrupted."""

    def __init__(self, server: Server) -> None:
        self._port = int(server.url.rpartition(":")[2])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads = [self._start(self._accept)]

    def _start(self, work: object, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        return thread

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [near, far]
                self._threads.append(self._start(self._carry, near, far))
                self._threads.append(self._start(self._carry, far, near))

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        _shut(source, target)

    def cut(self) -> None:
        """Close all connections; new ones are forwarded."""
        _shut(*self._ends)

    def close(self) -> None:
        """End everything."""
        _shut(self._listener, *self._ends)
        self._listener.close()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for end in self._ends:
            end.close()


def _shut(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def wire_to(server: Server) -> Iterator[Wire]:
    """Run a proxy to the server during the block."""
    wire = Wire(server)
    try:
        yield wire
    finally:
        wire.close()


class Gate:
    """A command that creates the file `begun` when it starts, and ends when it is released."""

    def __init__(self, directory: Path, name: str = "gate") -> None:
        self._begun = directory / f"{name}.begun"
        self._open = directory / f"{name}.open"
        self.payload = {
            "command": f"echo $$ >> {self._begun}; "
            f"until [ -e {self._open} ]; do sleep 0.02; done; echo through"
        }

    @property
    def pids(self) -> list[int]:
        """The processes that have started the command."""
        text = self._begun.read_text() if self._begun.exists() else ""
        return [int(line) for line in text.split()]

    def wait_begun(self, times: int = 1) -> None:
        """Return when the command has started this many times."""
        eventually(lambda: len(self.pids) >= times, f"start {times} of the command")

    def open(self) -> None:
        """Let the command end."""
        self._open.touch()
