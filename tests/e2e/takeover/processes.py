"""The server processes of a run: an active and a standby, or one that a supervisor restarts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from tests.e2e.supervisor import Supervisor
from tests.e2e.takeover.evidence import Kill
from tests.sources import ROOT

DEADLINE_S = 60.0
APPLICATION = "tests.e2e.takeover.app:app"


class Servers:
    """Keeps the processes alive, and kills them."""

    def __init__(self, directory: Path, *, standby: bool) -> None:
        self._directory = directory
        self._supervisor = Supervisor(directory)
        self.store = directory / "schedo.db"
        self.runs = directory / "runs.log"
        self.runs.touch()
        self.port = self._supervisor.port
        self._has_standby = standby
        self._count = 2 if standby else 1
        self.members: list[subprocess.Popen[str]] = []
        self.kills: list[Kill] = []
        self._is_stopping = False
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the processes; return when the active one answers."""
        self._keeping = asyncio.create_task(self._keep())
        await self.wait_ready()

    async def _keep(self) -> None:
        """Start a process for each one that has ended."""
        while not self._is_stopping:
            self.members = [each for each in self.members if each.poll() is None]
            while len(self.members) < self._count:
                self.members.append(self._spawn())
            await asyncio.sleep(0.005)

    def _spawn(self) -> subprocess.Popen[str]:
        options = ["--store", str(self.store), "--port", str(self.port), "--allow-shell"]
        options += ["--processes", "1", "--concurrency", "32", *(["--standby"] * self._has_standby)]
        return self._supervisor.start(
            *("-m", "schedo", "serve", *options, APPLICATION),
            TAKEOVER_RUNS=str(self.runs),
            PYTHONPATH=str(ROOT),
        )

    @property
    def active(self) -> subprocess.Popen[str] | None:
        """The process that has signed the lock of the store."""
        with suppress(FileNotFoundError):
            found = re.match(r"pid (\d+)", (self.store.with_name("schedo.db.lock")).read_text())
            for each in self.members:
                if found and each.pid == int(found[1]) and each.poll() is None:
                    return each
        return None

    @property
    def standby(self) -> subprocess.Popen[str] | None:
        """The process that waits."""
        active = self.active
        return next((each for each in self.members if each is not active), None)

    async def wait_ready(self) -> float:
        """Wait until requests are answered; return the time of that, by CLOCK_MONOTONIC."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                await asyncio.to_thread(_ask_ready, self.port)
                return time.monotonic()
            await asyncio.sleep(0.005)
        raise RuntimeError(f"no server was ready within {DEADLINE_S:g} s: {self.log()[-4000:]}")

    async def kill(self, what: str) -> None:
        """Kill the active or the standby with SIGKILL; return when requests are answered again."""
        target = self.active if what == "active" else self.standby
        if target is None:
            return
        at = time.monotonic()
        os.kill(target.pid, signal.SIGKILL)
        await asyncio.to_thread(target.wait)
        self.kills.append(Kill(what, target.pid, at, await self.wait_ready()))

    async def stop(self) -> list[int]:
        """Stop all with SIGTERM, the standby first; return the exit codes."""
        self._is_stopping = True
        if self._keeping is not None:
            await self._keeping
        standby = self.standby
        codes = []
        for each in sorted(self.members, key=lambda member: member is not standby):
            each.terminate()
            try:
                codes.append(await asyncio.to_thread(each.wait, DEADLINE_S))
            finally:
                each.kill()
        self._supervisor.__exit__(None, None, None)
        return codes

    def log(self) -> str:
        """Return the log of all processes."""
        return self._supervisor.log()


def start_worker(directory: Path, port: int, runs: Path) -> subprocess.Popen[str]:
    """Start a remote worker that runs commands and the tasks of the application."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDO_")}
    environment = {
        "XDG_STATE_HOME": str(directory),
        "PYTHONPATH": str(ROOT),
        "TAKEOVER_RUNS": str(runs),
        "TAKEOVER_PLACE": "remote",
    }
    options = ["--queues", "far", "--label", "place=far", "--allow-shell", "--slots", "16"]
    words = ["-m", "schedo", "worker", "--name", "far-1", "--server", f"http://127.0.0.1:{port}"]
    with (directory / "worker.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, *words, *options, APPLICATION],
            cwd=directory,
            env=kept | environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
        )


def _ask_ready(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
        response.read()
