"""The servers of a cluster, their workers, and the ways between them."""

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
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path

from schedo.core.ids import render_id
from tests.e2e.cluster import skewed
from tests.e2e.cluster.link import Link, Streams
from tests.e2e.ports import find_port
from tests.e2e.takeover.checker import Recorded
from tests.e2e.takeover.evidence import Kill, Row
from tests.e2e.takeover.processes import APPLICATION, DEADLINE_S, start_worker
from tests.postgres import USER, PostgresServer
from tests.sources import ROOT

SCHEMA = "jobs"
RESTART_S = 0.5  # from the end of a server to its next process
_ROWS = (
    "SELECT job.id, state, name, scheduled_for"
    " FROM job LEFT JOIN schedule ON schedule.id = schedule_id"
)
# Without late results, which say nothing of what was durable.
_ATTEMPTS = "SELECT job_id, attempt, epoch FROM attempt WHERE outcome <> 'stale'"


class Member:
    """One server: a process at a time, with a port, and the ways to PostgreSQL and to its peers."""

    def __init__(
        self, number: int, directory: Path, postgres: PostgresServer, source: Path = ROOT
    ) -> None:
        """source: the root of the checkout whose version the server is of."""
        self.number, self._source = number, source
        self.port = find_port()
        self.directory = directory / f"server-{number}"
        self.directory.mkdir()
        self.runs = directory / "runs.log"
        self._clock = self.directory / "clock"
        self.set_clock(0)
        self.to_store = Link(partial(asyncio.open_unix_connection, postgres.socket))
        self.from_peers = Link(partial(asyncio.open_connection, "127.0.0.1", self.port))
        self.process: subprocess.Popen[bytes] | None = None
        self.respawned = asyncio.Event()  # set by each process but the first one
        self.worker: subprocess.Popen[str] | None = None

    async def start(self, workers_port: int) -> None:
        """Open the ways, and start the process and a remote worker, which polls that port."""
        await self.to_store.open()
        await self.from_peers.open()
        self.spawn()
        self.worker = start_worker(self.directory, workers_port, self.runs, f"far-{self.number}")

    def spawn(self) -> None:
        """Start a process of the server."""
        url = f"postgresql://{USER}@127.0.0.1:{self.to_store.port}/postgres?schema={SCHEMA}"
        words = ["--store", f"{url}&sslmode=disable", "--port", str(self.port), "--allow-shell"]
        words += ["--advertise", f"http://127.0.0.1:{self.from_peers.port}"]
        words += ["--processes", "1", "--concurrency", "32", APPLICATION]
        kept = {name: text for name, text in os.environ.items() if not name.startswith("SCHEDO_")}
        own = {"PYTHONPATH": str(self._source), "TAKEOVER_RUNS": str(self.runs)}
        own[skewed.PATH_VARIABLE] = str(self._clock)
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", skewed.__file__, "serve", *words],
                cwd=self.directory,
                env=kept | own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def set_clock(self, offset_us: int) -> None:
        """Let the wall clock of the server be ahead of the real one by this much."""
        skewed.write_offset(self._clock, offset_us)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it lives."""
        if self.process is not None and self.is_alive:
            self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process; return its exit code."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, DEADLINE_S)

    async def wait_ready(self) -> float:
        """Wait until it answers `/readyz` with 200; return the time by CLOCK_MONOTONIC."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                await asyncio.to_thread(_ask_ready, self.port)
                return time.monotonic()
            await asyncio.sleep(0.01)
        raise RuntimeError(f"server {self.number} is not ready: {self.log()[-4000:]}")

    def log(self) -> str:
        return (self.directory / "log").read_text()

    async def close(self) -> None:
        if self.worker is not None:
            self.worker.terminate()
            self.worker.wait()
        await self.to_store.close()
        await self.from_peers.close()


class Cluster:
    """All servers; a process that has ended is followed by the next one after a moment."""

    def __init__(
        self, directory: Path, postgres: PostgresServer, count: int, earlier: Path | None = None
    ) -> None:
        """earlier: the root of another checkout, for every other server."""
        self.postgres = postgres
        self.runs = directory / "runs.log"
        self.runs.touch()
        sources = [ROOT, earlier or ROOT]
        self.members = [
            Member(number, directory, postgres, sources[number % 2])
            for number in range(1, count + 1)
        ]
        # Each new connection of a worker reaches the next server that accepts it.
        self._balancer = Link(self._connect_next)
        self._turns = cycle(range(count))
        self.kills: list[Kill] = []
        self.codes: list[int] = []  # of processes that ended by themselves
        self._keeping: asyncio.Task[None] | None = None

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(member.port for member in self.members)

    @property
    def balancer_port(self) -> int:
        return self._balancer.port

    async def start(self) -> None:
        """Start all; return when each of them answers."""
        await self._balancer.open()
        for member in self.members:
            await member.start(self._balancer.port)
            await member.wait_ready()
        self._keeping = asyncio.create_task(self._keep())

    async def _connect_next(self) -> Streams:
        first = next(self._turns)
        for member in self.members[first:] + self.members[:first]:
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", member.port)
        raise ConnectionRefusedError("no server accepts a connection")

    async def _keep(self) -> None:
        ended_at: dict[int, float] = {}
        while True:
            now = time.monotonic()
            for member in self.members:
                if member.is_alive:
                    ended_at.pop(member.number, None)
                elif now - ended_at.setdefault(member.number, now) >= RESTART_S:
                    assert member.process is not None
                    self.codes.append(member.process.returncode)
                    member.spawn()
                    member.respawned.set()
            await asyncio.sleep(0.05)

    async def stop(self) -> list[int]:
        """Stop all with SIGTERM, one after the other; return the exit codes."""
        if self._keeping is not None:
            self._keeping.cancel()
        codes = []
        for member in self.members:
            if member.process is not None:
                member.signal(signal.SIGTERM)
                codes.append(await member.ended())
        for member in self.members:
            await member.close()
        await self._balancer.close()
        return codes

    def rows(self) -> list[Row]:
        """Return the jobs of the store."""
        text = self.postgres.sql(f"SET search_path = {SCHEMA}; {_ROWS}")
        found = []
        for line in text.splitlines():
            if re.match(r"\d+\|", line):
                number, state, name, due = line.split("|")
                found.append(
                    Row(render_id(int(number)), state, name or None, int(due or 0) or None)
                )
        return found

    def recorded(self) -> Recorded:
        """Return the epochs of the unsuccessful attempts in the store, by job and number."""
        text = self.postgres.sql(f"SET search_path = {SCHEMA}; {_ATTEMPTS}")
        found: dict[tuple[str, int], set[int]] = defaultdict(set)
        for line in text.splitlines():
            if re.match(r"\d+\|", line):
                number, attempt, epoch = map(int, line.split("|"))
                found[render_id(number), attempt].add(epoch)
        return found

    def log(self) -> str:
        """Return the logs of all servers."""
        return "".join(member.log() for member in self.members)


def _ask_ready(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
        response.read()
