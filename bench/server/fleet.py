"""Lateness while a server of a cluster dies and comes back, with many workers that wait.

Three servers without an application share a PostgreSQL on this machine. Many workers poll two of
them, and nearly all of them wait all the time. The jobs of these two are due at a steady rate. The
third server is killed, and starts again a while later; at both the others recover, because their
shards change. The figures are the times from due to the arrival of the lease at a worker, by this
process's clock, of the jobs that are due in the time after each. The floor is that of the jobs of
the second before the kill.

The workers are connections of this process, which shares the machine with the servers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.figures import percentiles
from bench.peers import postgres
from bench.server.cluster import Cluster, until_shared
from bench.server.connection import batch_request, run, send_all, until_idle
from bench.server.evidence import NotDone
from bench.server.process import Server
from bench.server.script import Option, Results, run_script
from bench.server.workers import Workers

SHOWN = ("p50", "p99", "max")
AHEAD_S = 2.0  # between the submit and the first instant
KILL_S, START_S, END_S = 1.0, 2.5, 5.0  # after the first instant
KILLED, STARTED = "after a death", "after a start"
# Which jobs count for a figure, by their instants after the first one.
SPANS = {KILLED: (KILL_S, START_S), STARTED: (START_S, END_S)}
BEFORE = (0.0, KILL_S)


class Fleet:
    """The servers, and how late the jobs of each span were."""

    def __init__(self, servers: list[Server], rate: int) -> None:
        self._victim, *self.survivors = servers
        self._rate = rate
        self._first = 0.0  # when the first job of this round is due
        # Of each job, how long after the first one it was due, and how late a worker had it.
        self._late: list[tuple[float, float]] = []
        self.submitted = 0

    def took(self, lease: dict[str, Any], now: float) -> None:
        """Note that a worker has a job."""
        due = datetime.fromisoformat(lease["scheduled_for"]).timestamp()
        self._late.append((due - self._first, now - due))

    async def take_round(self) -> None:
        """Kill the server while jobs are due, and start it again."""
        self._first = time.time() + AHEAD_S
        count = round(self._rate * END_S / len(self.survivors))
        for survivor in self.survivors:
            jobs = [{"task": "noop", "run_at": self._instant(n, count)} for n in range(count)]
            await send_all(survivor, [batch_request(jobs)], 1)
            self.submitted += count
        await self._until(KILL_S)
        self._victim.kill()
        await self._until(START_S)
        await asyncio.to_thread(self._victim.start)
        await self._until(END_S)
        for survivor in self.survivors:
            await until_idle(survivor, 0.1)
        await until_shared([self._victim, *self.survivors])

    def _instant(self, number: int, count: int) -> str:
        at = self._first + number * END_S / count
        return datetime.fromtimestamp(at, UTC).isoformat()

    async def _until(self, after_s: float) -> None:
        await asyncio.sleep(self._first + after_s - time.time())

    def find(self, span: tuple[float, float]) -> dict[str, int]:
        """Return how late the jobs were that were due in this span of each round."""
        begin, end = span
        found = [round(late * 1_000_000) for after, late in self._late if begin <= after < end]
        return percentiles(found)

    def check(self) -> str:
        """Return that each job came to one worker once; raise NotDone."""
        if len(self._late) != self.submitted:
            raise NotDone(f"{self.submitted} jobs had {len(self._late)} leases")
        return f"{self.submitted:,} jobs came to a worker once each"


async def _measure(servers: list[Server], arguments: argparse.Namespace) -> Fleet:
    await until_shared(servers)
    fleet = Fleet(servers, arguments.rate)
    first, second = fleet.survivors
    half = arguments.workers // 2
    async with (
        Workers(first, half, arguments.slots, fleet.took, "a"),
        Workers(second, half, arguments.slots, fleet.took, "b"),
    ):
        for _ in range(arguments.kills):
            await fleet.take_round()
    return fleet


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Kill the server some times, and show how late the jobs were."""
    with (
        postgres.cluster() as socket,
        postgres.database(socket) as address,
        Cluster(directory, address, 3, app=None) as cluster,
    ):
        fleet = run(_measure(cluster.servers, arguments))
    least = fleet.find(BEFORE)
    for what, span in SPANS.items():
        found = fleet.find(span)
        for share in SHOWN:
            what_share = f"due to worker, {what}: {share}"
            results.add(what_share, found[share], "us", least[share], "before the kill")
    results.check(fleet.check())
    results.note(f"load average {os.getloadavg()[0]:.1f}")


OPTIONS = (
    Option("workers", 600, 20, "workers, half of them at each of two servers"),
    Option("slots", 2, 2, "slots of each"),
    Option("rate", 100, 20, "jobs a second"),
    Option("kills", 5, 1, "how often a server dies"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
