"""The server processes of a run: an active and a standby, or one that a supervisor restarts."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from bench.stolen import read_stolen_s
from schedo.handover.client import read_status
from schedo.handover.link import LinkLost
from schedo.handover.messages import BadMessage, StandbyStatus
from tests.e2e.ports import find_port
from tests.e2e.supervisor import Supervisor
from tests.e2e.takeover.evidence import Kill
from tests.sources import ROOT

DEADLINE_S = 60.0
LOOK_S = 0.02  # between two looks for a standby
RESTART_S = 0.1  # from an end to the next process, as in deploy/schedo.service
DEATH_S = 2.0  # within which a death at a point of the code is noticed, and the next one is active
APPLICATION = "tests.e2e.takeover.app:app"


FAILPOINTS = [
    f"{when} {place}"
    for when in ("before", "after")
    for place in (
        "schedo.server.server Server.open 1",
        "schedo.server.server Server.attach 1",
        "schedo.server.server Server.listen 1",
        "schedo.store.sqlite.store SqliteStore.open 1",
        "schedo.store.sqlite.store SqliteStore.commit 1",
        "schedo.store.sqlite.store SqliteStore.commit 7",
        "schedo.store.sqlite.store SqliteStore._checkpoint 1",
        "schedo.web.server HttpServer.listen 1",
    )
]


class Servers:
    """Keeps the processes alive, and kills them.

    module: what `python -m` runs. options: of `serve`, besides the usual ones. failpoints: there is
    a second standby, and now and then a process dies at a point of its code.
    """

    module = "schedo"

    def __init__(
        self, directory: Path, *, standby: bool, failpoints: random.Random | None = None
    ) -> None:
        self.options: tuple[str, ...] = ()
        self._environment: dict[str, str] = {}
        self._failpoints = failpoints
        self._doomed: dict[int, str] = {}  # processes that die at a point of their code
        self._supervisor = Supervisor(directory, has_store=False)
        self._sockets = () if standby else [self._supervisor.listener]
        self.store = directory / "schedo.db"
        self.runs = directory / "runs.log"
        self.runs.touch()
        self.port = find_port() if standby else self._supervisor.port
        self._has_standby = standby
        self._spawn_at = 0.0  # by CLOCK_MONOTONIC
        self._count = 1 + standby + (failpoints is not None)
        self.members: list[subprocess.Popen[str]] = []
        self.kills: list[Kill] = []
        self._is_started = self._is_stopping = False
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the processes; return when the active one answers."""
        self._keeping = asyncio.create_task(self._keep())
        await self.wait_ready()
        self._is_started = True

    async def _keep(self) -> None:
        """Start a process for each one that has ended."""
        while not self._is_stopping:
            self._supervisor.read()
            self._remove_ended()
            while len(self.members) < self._count and time.monotonic() >= self._spawn_at:
                self.members.append(self._spawn())
            await asyncio.sleep(0.005)

    def _remove_ended(self) -> None:
        now = time.monotonic()
        for each in [each for each in self.members if each.poll() is not None]:
            self.members.remove(each)
            self._spawn_at = now + RESTART_S
            point = self._doomed.pop(each.pid, None)
            if point and each.pid not in [kill.pid for kill in self.kills]:
                self.kills.append(Kill(point, each.pid, now - DEATH_S, now + DEATH_S))

    def _choose_failpoint(self) -> str:
        """Return a point for a new process, at most for one at a time, or nothing.

        The first processes have none: they might die before another one has the listener.
        """
        if self._failpoints is None or self._doomed or not self._is_started:
            return ""
        if self._failpoints.random() < 0.3:
            return ""
        return self._failpoints.choice(FAILPOINTS)

    def _spawn(self) -> subprocess.Popen[str]:
        point = self._choose_failpoint()
        process = self._spawn_with(point)
        if point:
            self._doomed[process.pid] = point
        return process

    def _spawn_with(self, point: str) -> subprocess.Popen[str]:
        options = ["--store", str(self.store), "--port", str(self.port), "--allow-shell"]
        options += ["--processes", "1", "--concurrency", "32", *(["--standby"] * self._has_standby)]
        return self._supervisor.start(
            *("-m", self.module, "serve", *options, *self.options, APPLICATION),
            sockets=self._sockets,
            TAKEOVER_RUNS=str(self.runs),
            PYTHONPATH=f"{ROOT / 'tests/e2e/takeover/failpoints'}:{ROOT}" if point else str(ROOT),
            TAKEOVER_FAILPOINT=point,
            **self._environment,
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
    def active_pid(self) -> int | None:
        """The process that serves, if there is one."""
        return self.active.pid if self.active is not None else None

    @property
    def pids(self) -> list[int]:
        """All server processes."""
        return [each.pid for each in self.members]

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

    async def wait_standby(self, *, warm: bool) -> None:
        """Wait until all standbys have the listener, and one is warm if that is wanted."""
        deadline = time.monotonic() + DEADLINE_S
        while self._has_standby and time.monotonic() < deadline:
            found = await self._list_standbys()
            if len(found) >= self._count - 1 and (not warm or any(each.is_warm for each in found)):
                return
            await asyncio.sleep(LOOK_S)
        if self._has_standby:
            raise RuntimeError(
                f"no standby was there within {DEADLINE_S:g} s: {self.log()[-4000:]}"
            )

    async def _list_standbys(self) -> list[StandbyStatus]:
        """Return those that have the listener of the active server."""
        with suppress(LinkLost, BadMessage):
            return (await read_status(f"{self.store}.ctl")).standbys
        return []

    async def kill(self, what: str) -> Kill | None:
        """Kill the active or the standby with SIGKILL; return when requests are answered again.

        Return None if there is no such process now.
        """
        is_warm = any(each.is_warm for each in await self._list_standbys())
        target = self.active if what == "active" else self.standby
        if target is None:
            return None
        at, stolen_s = time.monotonic(), read_stolen_s()
        os.kill(target.pid, signal.SIGKILL)
        await asyncio.to_thread(target.wait)
        ready_at = await self.wait_ready()
        kill = Kill(what, target.pid, at, ready_at, is_warm, read_stolen_s() - stolen_s)
        self.kills.append(kill)
        return kill

    async def stop(self) -> list[int]:
        """Stop all with SIGTERM, the standbys first; return the exit codes.

        A standby that outlived the active would take over, and might die at its point.
        """
        self._is_stopping = True
        if self._keeping is not None:
            await self._keeping
        active = self.active
        codes = []
        for each in sorted(self.members, key=lambda member: member is active):
            each.terminate()
            codes.append(await asyncio.to_thread(each.wait, DEADLINE_S))
        self._supervisor.__exit__(None, None, None)
        return codes

    def log(self) -> str:
        """Return the log of all processes."""
        return self._supervisor.log()


def start_worker(
    directory: Path, port: int, runs: Path, name: str = "far-1"
) -> subprocess.Popen[str]:
    """Start a remote worker that runs commands and the tasks of the application."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDO_")}
    environment = {
        "XDG_STATE_HOME": str(directory),
        "PYTHONPATH": str(ROOT),
        "TAKEOVER_RUNS": str(runs),
        "TAKEOVER_PLACE": "remote",
    }
    options = ["--queues", "far", "--label", "place=far", "--allow-shell", "--slots", "16"]
    words = ["-m", "schedo", "worker", "--name", name, "--server", f"http://127.0.0.1:{port}"]
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
