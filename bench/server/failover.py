"""How long the jobs of a killed server of a cluster wait: kill -9 to their first start elsewhere.

Some servers share a PostgreSQL on this machine. One of them gets jobs that are due at each
millisecond, and is killed while they start. The figure is the time from the signal to the first
start by another server, by the clock of the handler. The killed server starts again, gets its
shards back, and the next one is killed.

The floor is the time from the signal to the end of the session in which the killed server wrote:
no other server may take its shards before, and the kernel and PostgreSQL alone determine it.
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
from typing import NamedTuple

import asyncpg

from bench.figures import percentiles
from bench.peers import postgres
from bench.server.cluster import SCHEMA, SETTLE_S, Cluster
from bench.server.connection import batch_request, connect, run
from bench.server.evidence import NotDone
from bench.server.process import Server
from bench.server.script import Option, Results, run_script
from bench.stolen import read_stolen_s

OK = 200
AHEAD_S = 0.3  # between the submit and the first instant
SPAN_S = 0.6  # in which the jobs are due
KILL_S = (0.05, 0.2)  # after the first instant
WATCHED_S = 0.1  # after a kill: the host may take processor time from it
_STARTS = f"""
SELECT convert_from(result, 'UTF8')::bigint AS at, epoch, state FROM {SCHEMA}.job
WHERE due_at >= $1 AND due_at < $2 AND task = 'stamp'"""


_AWAIT_END = f"SELECT pg_advisory_lock_shared(hashtext('schedo store {SCHEMA}'), $1::int)"


class _Kill(NamedTuple):
    """Microseconds from the signal: to the end of the session that wrote, to the first start.

    stolen_s: by the host.
    """

    ended_us: int
    took_us: int
    stolen_s: float


async def _kill(server: Server, session: asyncpg.Connection, watching: asyncpg.Connection) -> _Kill:
    """Kill a server while its jobs start."""
    number = await _read_number(server)
    first = time.time_ns() // 1000 + int(AHEAD_S * 1e6)
    instants = range(first, first + int(SPAN_S * 1e6), 1000)
    await _submit(server, instants)
    ending = asyncio.create_task(_await_end(watching, number))
    left = first / 1e6 + random.uniform(*KILL_S) - time.time()
    await asyncio.sleep(max(0.0, left))
    killed, stolen_s = time.time_ns() // 1000, read_stolen_s()
    server.kill()
    await asyncio.sleep(WATCHED_S)
    stolen_s = read_stolen_s() - stolen_s
    starts = await _starts(session, first, instants[-1] + 1)
    old = {epoch for at, epoch in starts if at < killed}
    if len(old) != 1:
        raise NotDone(f"before the kill, jobs were started in the epochs {sorted(old)}")
    began = min(at for at, epoch in starts if at > killed and epoch not in old)
    return _Kill(await ending - killed, began - killed, stolen_s)


async def _read_number(server: Server) -> int:
    connection = await connect(server)
    try:
        return int((await connection.get("/v1/cluster"))["me"])
    finally:
        connection.close()


async def _await_end(watching: asyncpg.Connection, number: int) -> int:
    """Return when PostgreSQL has ended the session in which the server with this number writes."""
    await watching.fetchval(_AWAIT_END, number)
    ended = time.time_ns() // 1000
    await watching.execute("SELECT pg_advisory_unlock_all()")
    return ended


async def _starts(session: asyncpg.Connection, first: int, end: int) -> list[tuple[int, int]]:
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


def _at(instant_us: int) -> datetime:
    return datetime.fromtimestamp(instant_us / 1_000_000, UTC)


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Kill the servers in turn."""
    with (
        postgres.cluster() as socket,
        postgres.database(socket) as address,
        Cluster(directory, address, arguments.servers) as cluster,
    ):
        run(_measure(cluster, address, arguments.kills, results))


async def _measure(cluster: Cluster, address: str, kills: int, results: Results) -> None:
    session, watching = await asyncpg.connect(address), await asyncpg.connect(address)
    found: list[_Kill] = []
    memory: list[int] = []
    for number in range(kills):
        await cluster.until_shared()
        victim = cluster.servers[number % len(cluster.servers)]
        memory.append(victim.rss_bytes)
        found.append(await _kill(victim, session, watching))
        victim.start_ready()
    await asyncio.gather(session.close(), watching.close())
    _add_times(results, "floor: the end of its session", [each.ended_us for each in found])
    _add_times(results, "kill to first fire", [each.took_us for each in found])
    left = [each.took_us for each in found if not each.stolen_s]
    if left:
        _add_times(results, "the same, no processor time stolen", left)
    results.note(f"the host took processor time from {kills - len(left)} of {kills} kills")
    results.add("memory of a server, most", max(memory), "bytes")
    results.check(f"after each of {kills} kills all jobs completed")
    results.note(f"load average {os.getloadavg()[0]:.1f}")


def _add_times(results: Results, what: str, times_us: list[int]) -> None:
    shares = percentiles(times_us)
    for share in ("p50", "p99"):
        results.add(f"{what}: {share}", shares[share], "us")
    results.add(f"{what}: worst", shares["max"], "us")


OPTIONS = (
    Option("kills", 100, 3, "how many servers are killed"),
    Option("servers", 3, 3, "how many servers share the store"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
