"""A server whose process is exchanged by `schedo upgrade`, again and again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.e2e.takeover.evidence import Kill
from tests.e2e.takeover.processes import DEADLINE_S, Servers
from tests.sources import ROOT


class Upgrade(NamedTuple):
    """One call of the command. at: seconds of CLOCK_MONOTONIC at its begin."""

    at: float
    elapsed_s: float
    code: int
    output: str


class UpgradedServer(Servers):
    """The first process is started here; each upgrade starts the next one."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, standby=True)  # no socket of a supervisor
        self._has_standby = False
        self._count = 1
        self.upgrades: list[Upgrade] = []

    async def _keep(self) -> None:
        self.members.append(self._spawn())
        while not self._is_stopping:
            self._supervisor.read()
            await asyncio.sleep(0.05)

    @property
    def active_pid(self) -> int | None:
        """The process that has signed the lock of the store."""
        with suppress(FileNotFoundError):
            text = self.store.with_name("schedo.db.lock").read_text()
            if found := re.match(r"pid (\d+)", text):
                return int(found[1])
        return None

    @property
    def pids(self) -> list[int]:
        """All processes that serve, or see through what they still run."""
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if _is_server(path, self.store)
        ]

    async def upgrade(self) -> Upgrade:
        """Run `schedo upgrade`, and return how it ended."""
        return await asyncio.to_thread(self._upgrade)

    def _upgrade(self) -> Upgrade:
        options = ["--store", str(self.store), "--timeout", f"{DEADLINE_S:g}s"]
        began = time.monotonic()
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDO_")}
        done = subprocess.run(
            [sys.executable, "-m", "schedo", "upgrade", *options],
            env=kept | {"PYTHONPATH": str(ROOT)},
            cwd=self.store.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        made = Upgrade(began, time.monotonic() - began, done.returncode, done.stdout)
        self.upgrades.append(made)
        return made

    async def kill(self, what: str) -> None:
        """Kill the active process."""
        pid, at = self.active_pid, time.monotonic()
        assert pid is not None, "a server is active"
        os.kill(pid, signal.SIGKILL)
        self.kills.append(Kill(what, pid, at, at))

    async def stop(self) -> list[int]:
        """Stop the active process, and wait for the others, which see their attempts through.

        Whichever process becomes active after that is stopped as well.
        """
        self._is_stopping = True
        stopped = None
        deadline = time.monotonic() + DEADLINE_S
        while self.pids and time.monotonic() < deadline:
            if self.active_pid not in (None, stopped):
                stopped = self.active_pid
                with suppress(ProcessLookupError):
                    os.kill(stopped, signal.SIGTERM)
            for each in self.members:
                each.poll()  # reaps it
            await asyncio.sleep(0.05)
        left = self.pids
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self._supervisor.__exit__(None, None, None)
        return left  # as exit codes: none of them ended by itself


def _is_server(path: Path, store: Path) -> bool:
    with suppress(OSError):
        words = path.read_bytes().split(b"\0")
        return b"serve" in words and str(store).encode() in words
    return False
