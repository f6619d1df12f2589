"""Upgrades in which the old or the new process dies at each of the six steps, beside a standby."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.e2e.takeover.dying import PATH_VARIABLE
from tests.e2e.takeover.evidence import Kill
from tests.e2e.takeover.processes import DEADLINE_S
from tests.e2e.takeover.upgraded import UpgradedServer

STEPS = (
    ("started",),
    ("ready",),
    ("sent",),
    ("held", "frozen"),
    ("opened", "active"),
    ("replaced",),
)
PROCESSES = ("old", "new")
REQUEST = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
PROBE_S = 0.003


class SteppedServer(UpgradedServer):
    """An active server that is upgraded, and a standby in case neither process is left."""

    module = "tests.e2e.takeover.dying"

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory)
        self._random = random.Random(seed)
        self._has_standby = True
        self._death = directory / "death"
        self._standby: subprocess.Popen[str] | None = None
        self._environment = {PATH_VARIABLE: str(self._death)}

    async def _keep(self) -> None:
        """Have an active server, and a standby beside it."""
        while not self._is_stopping:
            self._supervisor.read()
            self._reap()
            standby = self._standby
            if standby is None or standby.poll() is not None or standby.pid == self.active_pid:
                self._standby = self._spawn()
                self.members.append(self._standby)
            await asyncio.sleep(0.02)

    def _reap(self) -> None:
        self.members = [each for each in self.members if each.poll() is None]

    def rounds(self, times: int) -> Iterator[tuple[str, str]]:
        """Return the process and the step of each death, in a random order."""
        cases = [(process, steps) for process in PROCESSES for steps in STEPS] * times
        self._random.shuffle(cases)
        for process, steps in cases:
            yield process, self._random.choice(steps)

    async def die_at(self, process: str, step: str) -> None:
        """Upgrade; the process dies at the step. Return when a server answers after that."""
        await self.wait_standby(warm=True)
        done = self._death.with_suffix(".done")
        done.unlink(missing_ok=True)
        self._death.write_text(f"{process} {step}")
        with Prober(self.port) as prober:
            await self.upgrade()
            pid, at = await asyncio.to_thread(_read_death, done)
            answered_at = await asyncio.to_thread(prober.wait_after, at)
        self.kills.append(Kill(f"{process} at {step}", pid, at, answered_at))

    async def stop(self) -> list[int]:
        """Stop the standby first."""
        self._is_stopping = True
        if self._keeping is not None:
            await self._keeping
        if self._standby is not None and self._standby.pid != self.active_pid:
            self._standby.terminate()
            await asyncio.to_thread(self._standby.wait, DEADLINE_S)
        return await super().stop()


def _read_death(path: Path) -> tuple[int, float]:
    """Wait for the file of a death; return the pid and when it was killed."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if path.exists() and len(words := path.read_text().split()) == 2:
            return int(words[0]), float(words[1])
        time.sleep(PROBE_S)
    raise RuntimeError("no process has died")


class Prober:
    """Asks the server again and again, in a thread, and notes when it responds."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answered: list[tuple[float, float]] = []  # when it was asked, and when it answered
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            asked_at = time.monotonic()
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), timeout=DEADLINE_S) as sock,
            ):
                sock.sendall(REQUEST)
                if sock.recv(4_096).startswith(b"HTTP/1.1 200 "):
                    self._answered.append((asked_at, time.monotonic()))
            time.sleep(PROBE_S)

    def wait_after(self, at: float) -> float:
        """Return when the first request was answered that was sent after this instant."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for asked_at, answered_at in list(self._answered):
                if asked_at >= at:
                    return answered_at
            time.sleep(PROBE_S)
        raise RuntimeError(f"no server answered within {DEADLINE_S:g} s")
