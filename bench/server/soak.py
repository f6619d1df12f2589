"""A steady load on a cluster for half an hour or more: does anything grow?

Some servers share a PostgreSQL on this machine and run timed jobs at one rate. Ended jobs are kept
for a minute, so a while after the start everything should stay as it is: the memory of each server
and of its child processes, the size of all tables with their indexes, and how late jobs start by
the clock of the handler. One table grows for a day: the responses to requests with an Idempotency-
Key, which each submit of the client has, are kept for 24 hours. A sample is taken each few seconds.
The figures compare the last third with the one before, which is the floor, and give the slope of a
straight line through both. At the end each job must have run once. `--minutes 240` and `--minutes
1440` are the long ones.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import asyncpg

from bench.figures import percentiles
from bench.peers import postgres
from bench.server.cluster import SCHEMA, SETTLE_S, Cluster
from bench.server.connection import connect, run
from bench.server.evidence import NotDone
from bench.server.process import Server
from bench.server.script import Option, Results, run_script
from schedo import AsyncClient

AHEAD_US = 500_000  # between a submit and the first instant of its jobs
BATCH_S = 0.1
SAMPLE_S = 5.0
KEPT = ("--retention-completed", "1m")
_LATENESS = f"""
SELECT coalesce(array_agg(convert_from(result, 'UTF8')::bigint - due_at), '{{}}') FROM {SCHEMA}.job
WHERE due_at >= $1 AND due_at < $2 AND result IS NOT NULL"""
_SIZE = """
SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'"""
GROWN_MAX = 3  # tables that are named, because they have grown the most
KEPT_FOR_A_DAY = "idempotency_record"


class Sample(NamedTuple):
    """What grows or not, at one moment."""

    at: float  # s since the start
    server_bytes: float  # of one server, on average
    child_bytes: float  # of the child processes of one server
    table_bytes: Counter[str]  # of each table, with its indexes
    lateness_p50_us: float  # of the last seconds
    lateness_p99_us: float


class Soak:
    """The load, and the samples of it."""

    def __init__(self, cluster: Cluster, session: asyncpg.Connection, rate: int) -> None:
        self._servers, self._session = cluster.servers, session
        self._per_batch = int(rate * BATCH_S)
        self._began = time.monotonic()
        self.samples: list[Sample] = []
        self.submitted = 0

    async def submit(self, seconds: float) -> None:
        """Submit timed jobs for so long, each batch at the next server."""
        step = int(BATCH_S * 1_000_000)
        first = time.time_ns() // 1000 + AHEAD_US
        clients = [AsyncClient(server.url) for server in self._servers]
        try:
            for number in range(int(seconds / BATCH_S)):
                begin = first + number * step
                await asyncio.sleep((begin - AHEAD_US - time.time_ns() // 1000) / 1_000_000)
                instants = [begin + n * step // self._per_batch for n in range(self._per_batch)]
                jobs = [{"task": "stamp", "run_at": _at(instant)} for instant in instants]
                await clients[number % len(clients)].submit_many(jobs)
                self.submitted += len(jobs)
        finally:
            for client in clients:
                await client.close()

    async def watch(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.samples.append(await self._sample())

    async def _sample(self) -> Sample:
        memory = [server.memory_bytes for server in self._servers]
        until = time.time_ns() // 1000 - 1_000_000
        since = until - int(SAMPLE_S * 1_000_000)
        shares = percentiles(await self._session.fetchval(_LATENESS, since, until) or [0])
        return Sample(
            time.monotonic() - self._began,
            statistics.mean(own for own, *_ in memory),
            statistics.mean(sum(children) for _, *children in memory),
            Counter(dict(await self._session.fetch(_SIZE, SCHEMA))),
            shares["p50"],
            shares["p99"],
        )

    async def check(self) -> None:
        """Wait until all jobs have ended; raise NotDone unless each has completed once."""
        deadline = time.monotonic() + SETTLE_S
        while (ended := await _count_completed(self._servers[0])) < self.submitted:
            if time.monotonic() > deadline:
                raise NotDone(f"{ended} of {self.submitted} jobs have completed")
            await asyncio.sleep(0.2)
        if ended > self.submitted:
            raise NotDone(f"{self.submitted} jobs have completed {ended} times")


async def _count_completed(server: Server) -> int:
    """Return how many jobs have completed in the last day, at all servers."""
    connection = await connect(server)
    try:
        found = await connection.get("/v1/summary")
    finally:
        connection.close()
    return int(found["day"]["completed"])


def _at(instant_us: int) -> datetime:
    return datetime.fromtimestamp(instant_us / 1_000_000, UTC)


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Run the load and show what has grown."""
    with (
        postgres.cluster() as socket,
        postgres.database(socket) as address,
        Cluster(directory, address, arguments.servers, *KEPT) as cluster,
    ):
        run(_measure(cluster, address, arguments, results))


async def _measure(
    cluster: Cluster, address: str, arguments: argparse.Namespace, results: Results
) -> None:
    await cluster.until_shared()
    session = await asyncpg.connect(address)
    soak = Soak(cluster, session, arguments.rate)
    watching = asyncio.create_task(soak.watch())
    try:
        await soak.submit(arguments.minutes * 60)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    await soak.check()
    await session.close()
    _show(soak.samples, results)
    results.check(f"each of {soak.submitted:,} jobs has completed once")
    results.note(f"load average {os.getloadavg()[0]:.1f}")


def _show(samples: Sequence[Sample], results: Results) -> None:
    third = len(samples) // 3
    before, last = samples[-2 * third : -third], samples[-third:]

    def add(what: str, unit: str, read: Callable[[Sample], float]) -> None:
        floor = statistics.median(map(read, before))
        results.add(what, statistics.median(map(read, last)), unit, floor, "the third before")

    def add_bytes(what: str, read: Callable[[Sample], float]) -> None:
        add(what, "bytes", read)
        slope = statistics.linear_regression(
            [each.at / 3600 for each in (*before, *last)], [read(each) for each in (*before, *last)]
        ).slope
        results.note(f"{what}: {slope / 1e6:+.2f} MB an hour")

    add_bytes("memory of a server", lambda each: each.server_bytes)
    add_bytes("memory of its child processes", lambda each: each.child_bytes)
    add_bytes(
        "other tables with their indexes",
        lambda each: each.table_bytes.total() - each.table_bytes[KEPT_FOR_A_DAY],
    )
    add_bytes("responses kept for 24 hours", lambda each: each.table_bytes[KEPT_FOR_A_DAY])
    for table, grown in _find_growth(before, last).most_common(GROWN_MAX):
        results.note(f"{table}: {grown / 1e6:+.2f} MB from the third before to the last one")
    add("lateness p50", "us", lambda each: each.lateness_p50_us)
    add("lateness p99", "us", lambda each: each.lateness_p99_us)


def _find_growth(before: Sequence[Sample], last: Sequence[Sample]) -> Counter[str]:
    """Return by how many bytes the median of each table has grown."""
    grown = Counter[str]()
    for table in last[-1].table_bytes:
        medians = (statistics.median(s.table_bytes[table] for s in each) for each in (before, last))
        floor, found = medians
        grown[table] = round(found - floor)
    return grown


OPTIONS = (
    Option("minutes", 30, 1, "minutes of load"),
    Option("rate", 500, 50, "jobs a second"),
    Option("servers", 3, 3, "how many servers share the store"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
