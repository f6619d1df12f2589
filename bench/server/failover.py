"""How long the jobs of a killed server of a cluster wait: kill -9 to their first start elsewhere.

Some servers share a PostgreSQL on this machine. One of them gets jobs that are due at each
millisecond, and is killed while they start. The figure is the time from the signal to the first
start by another server, by the clock of the handler. The killed server starts again, gets its
shards back, and the next one is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from bench.figures import percentiles
from bench.peers import postgres
from bench.server.connection import batch_request, connect, run
from bench.server.evidence import NotDone
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, run_script

OK = 200
AHEAD_S = 0.3  # between the submit and the first instant
SPAN_S = 0.6  # in which the jobs are due
KILL_S = (0.05, 0.2)  # after the first instant
SETTLE_S = 20.0
# On a busy machine servers may be silent for longer than by default; a death is noticed at once.
PATIENT = ("--failover-timeout", "2s")
SCHEMA = "schedo"
_STARTS = f"""
SELECT convert_from(result, 'UTF8')::bigint AS at, epoch, state FROM {SCHEMA}.job
WHERE due_at >= $1 AND due_at < $2 AND task = 'stamp'"""


class Cluster:
    """The servers, each in a directory of its own."""

    def __init__(self, directory: Path, address: str, count: int) -> None:
        self.servers = []
        for number in range(count):
            place = directory / str(number)
            place.mkdir()
            self.servers.append(Server(place, "--store", address, *PATIENT, app=NOOP_APP))

    async def until_shared(self) -> None:
        """Wait until each server owns its share; raise NotDone."""
        deadline = time.monotonic() + SETTLE_S
        least = 32 // len(self.servers)
        while time.monotonic() < deadline:
            if all([least <= await _owned_shards(each) <= least + 1 for each in self.servers]):
                return
            await asyncio.sleep(0.1)
        raise NotDone(f"the servers did not share the shards within {SETTLE_S:.0f} s")

    async def kill(self, number: int, session: asyncpg.Connection) -> int:
        """Kill a server while its jobs start; return the us until another one starts one."""
        server = self.servers[number]
        first = time.time_ns() // 1000 + int(AHEAD_S * 1e6)
        instants = range(first, first + int(SPAN_S * 1e6), 1000)
        await _submit(server, instants)
        left = first / 1e6 + random.uniform(*KILL_S) - time.time()
        await asyncio.sleep(max(0.0, left))
        killed = time.time_ns() // 1000
        server.kill()
        starts = await self._starts(session, first, instants[-1] + 1)
        old = {epoch for at, epoch in starts if at < killed}
        if len(old) != 1:
            raise NotDone(f"before the kill, jobs were started in the epochs {sorted(old)}")
        return min(at for at, epoch in starts if at > killed and epoch not in old) - killed

    async def _starts(
        self, session: asyncpg.Connection, first: int, end: int
    ) -> list[tuple[int, int]]:
        """Return when each of the jobs was started, and in which epoch, when all have ended."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            await asyncio.sleep(0.3)
            rows = await session.fetch(_STARTS, first, end)
            if all(row["state"] == "completed" for row in rows):
                return [(row["at"], row["epoch"]) for row in rows]
        raise NotDone("not all jobs of a killed server completed")


async def _submit(server: Server, instants: Iterable[int]) -> None:
    """Make a job for each instant in the shards of the server.

    Without an Idempotency-Key, as the client sends it: a batch with one goes to the owner of its
    key, and so most often to a server that is not killed.
    """
    jobs = [{"task": "stamp", "run_at": _at(at).isoformat()} for at in instants]
    connection = await connect(server)
    try:
        reply = await connection.ask(batch_request(jobs))
    finally:
        connection.close()
    if reply.status != OK:
        raise NotDone(f"the submit was answered with {reply.status}: {reply.body!r}")


async def _owned_shards(server: Server) -> int:
    connection = await connect(server)
    try:
        found = await connection.get("/v1/cluster")
    finally:
        connection.close()
    return sum(len(each["shards"]) for each in found["members"] if each["number"] == found["me"])


def _at(instant_us: int) -> datetime:
    return datetime.fromtimestamp(instant_us / 1_000_000, UTC)


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Kill the servers in turn."""
    with postgres.cluster() as socket, postgres.database(socket) as address:
        cluster = Cluster(directory, address, arguments.servers)
        try:
            for server in cluster.servers:
                server.start_ready()
            run(_measure(cluster, address, arguments.kills, results))
        finally:
            for server in cluster.servers:
                server.stop()


async def _measure(cluster: Cluster, address: str, kills: int, results: Results) -> None:
    session = await asyncpg.connect(address)
    found: list[int] = []
    memory: list[int] = []
    for number in range(kills):
        await cluster.until_shared()
        victim = number % len(cluster.servers)
        memory.append(cluster.servers[victim].rss_bytes)
        found.append(await cluster.kill(victim, session))
        cluster.servers[victim].start_ready()
    await session.close()
    shares = percentiles(found)
    for share in ("p50", "p99"):
        results.add(f"kill to first fire: {share}", shares[share], "us")
    results.add("kill to first fire: worst", max(found), "us")
    results.add("memory of a server, most", max(memory), "bytes")
    results.check(f"after each of {kills} kills all jobs completed")
    results.note(f"load average {os.getloadavg()[0]:.1f}")


OPTIONS = (
    Option("kills", 100, 3, "how many servers are killed"),
    Option("servers", 3, 3, "how many servers share the store"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
