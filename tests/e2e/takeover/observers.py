"""Observers beside a run: a third process that tries the lock, and the descriptors of children.

`python -m tests.e2e.takeover.observers LOCK` tries the lock each 5 ms until SIGTERM. Then it prints
the number of tries, and CLOCK_MONOTONIC of each time that it got the lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.e2e.takeover.checker import Findings
from tests.e2e.takeover.processes import Servers
from tests.sources import ROOT

TRY_S = 0.005
LOOK_S = 0.2


class Observers:
    """Both observers of one run."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._lock = LockObserver(servers.store.with_name("schedo.db.lock"))
        self._children = ChildObserver(servers.store, servers.port)
        self._looking = asyncio.create_task(self._look())
        self._tries = 0
        self._taken: list[float] = []

    async def _look(self) -> None:
        while True:
            await asyncio.to_thread(self._children.look, self._servers.pids)
            await asyncio.sleep(LOOK_S)

    def stop(self) -> None:
        """End both; the servers still run."""
        self._looking.cancel()
        self._tries, self._taken = self._lock.stop()

    def check(self, findings: Findings) -> None:
        """No other process gets the lock while a server is active, and no child a descriptor."""
        findings.counts["tries of the lock"] = self._tries
        findings.counts["children looked at"] = len(self._children.children)
        kills = [kill for kill in self._servers.kills if kill.what != "standby"]
        for at in self._taken:
            if not any(kill.at <= at <= kill.ready_at for kill in kills):
                findings.fault("lock", f"a third process got it at {at}")
        for finding in self._children.findings:
            findings.fault("descriptor in a child", finding)


class LockObserver:
    """Runs the third process."""

    def __init__(self, lock: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(lock)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> tuple[int, list[float]]:
        """End the process; return how often it tried, and when it got the lock."""
        self._process.terminate()
        output, _ = self._process.communicate()
        tries, *taken = output.split() or ["0"]
        return int(tries), [float(text) for text in taken]


def _try_forever(lock: Path) -> None:
    tries = 0
    taken: list[float] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            time.sleep(TRY_S)
            with suppress(FileNotFoundError):
                descriptor = os.open(lock, os.O_RDWR)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    taken.append(time.monotonic())
                except BlockingIOError:
                    pass
                finally:
                    os.close(descriptor)
                tries += 1
    except KeyboardInterrupt:
        print(tries, *taken)


class ChildObserver:
    """Looks for descriptors of the server in the processes that it has started.

    A process has the descriptors and the command line of its parent until it runs its own program.
    That takes long on a busy machine, so such a process does not count, and what is found once
    does not either.
    """

    def __init__(self, store: Path, port: int) -> None:
        self._store = store
        self._port = port
        self._seen: set[str] = set()
        self.children: set[int] = set()
        self.findings: set[str] = set()

    def look(self, servers: list[int]) -> None:
        """Look at all descendants of these processes."""
        secret = set(self._listening())
        seen = set()
        for server in servers:
            program = _read_command(server)
            for child in _descendants(server):
                if _read_command(child) == program:  # or it is the next server, after an upgrade
                    continue
                self.children.add(child)
                for target in _descriptors(child):
                    if target.startswith(str(self._store)) or target in secret:
                        seen.add(f"process {child} ({_read_command(child)[:80]}) has {target}")
        self.findings |= seen & self._seen
        self._seen = seen

    def _listening(self) -> Iterator[str]:
        """Return the names in /proc/*/fd of the listener and of the control socket."""
        port = f":{self._port:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(port) and fields[3] == "0A":
                yield f"socket:[{fields[9]}]"
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[7].startswith(str(self._store)):
                yield f"socket:[{fields[6]}]"


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for text in (task / "children").read_text().split():
                yield int(text)
                yield from _descendants(int(text))


def _descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def _read_command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


if __name__ == "__main__":
    _try_forever(Path(sys.argv[1]))
