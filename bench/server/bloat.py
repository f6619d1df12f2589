"""Jobs at a steady rate on PostgreSQL while an old transaction keeps all dead rows.

A report or a forgotten session that holds a snapshot lets vacuum remove nothing, and each job makes
dead rows. The script runs timed jobs at one rate: first alone, then beside a session that holds a
snapshot, then alone again. Each phase shows how many jobs ended, how late they started by the clock
of the handler, and the processor time of a job. The floor of the later phases is the first one. The
last figures say what the dead rows have left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from bench.figures import percentiles
from bench.peers import postgres
from bench.server.connection import run
from bench.server.evidence import NotDone
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, run_script
from schedo import AsyncClient

AHEAD_US = 300_000  # between a submit and the first instant of its jobs
BATCH_S = 0.1
END_S = 5.0  # for the last jobs of a phase
SHRINK_S = 120.0  # after which the dead rows should be gone
SCHEMA = "schedo"
_ENDED = f"""
SELECT count(*) FILTER (WHERE state = 'completed' AND attempt = 1) AS completed,
    coalesce(array_agg(convert_from(result, 'UTF8')::bigint - due_at)
        FILTER (WHERE result IS NOT NULL), '{{}}') AS lateness
FROM {SCHEMA}.job WHERE due_at >= $1 AND due_at < $2"""
_DEAD = f"SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = '{SCHEMA}.job'::regclass"
# The indexes of jobs that wait: the parts of the table that the server reads again and again.
LIVE = ("job_timers", "job_ready")
_SIZE = (
    f"SELECT sum(pg_relation_size(('{SCHEMA}.' || name)::regclass)) FROM unnest($1::text[]) name"
)


@dataclass(frozen=True)
class Phase:
    """What one phase showed. dead: rows of jobs at its end; live_bytes: of the indexes in LIVE."""

    completed: float  # a second
    lateness_us: dict[str, int]
    server_us: float  # processor time of a job, of the server with its children
    postgres_us: float
    dead: int
    live_bytes: int


class Bench:
    """A server on an empty store, and the session that looks at its tables."""

    def __init__(self, directory: Path, socket: Path, address: str, rate: int) -> None:
        self._socket, self._address, self._rate = socket, address, rate
        self.server = Server(directory, "--store", address, app=NOOP_APP)

    async def phase(self, seconds: float) -> Phase:
        """Run timed jobs for so long."""
        server_s, postgres_s = self.server.cpu_s, postgres.read_cpu_s(self._socket)
        first = time.time_ns() // 1000 + AHEAD_US
        last = await self._submit(first, int(seconds / BATCH_S))
        await asyncio.sleep((last - time.time_ns() // 1000) / 1_000_000 + END_S)
        server_s = self.server.cpu_s - server_s
        postgres_s = postgres.read_cpu_s(self._socket) - postgres_s
        session = await self.session()
        row = await session.fetchrow(_ENDED, first, last)
        dead, live_bytes = await self.dead(session)
        await session.close()
        count = int(seconds / BATCH_S) * self._per_batch
        if row["completed"] != count:
            raise NotDone(f"{row['completed']} of {count} jobs completed at their first attempt")
        return Phase(
            count / seconds,
            percentiles(row["lateness"]),
            server_s / count * 1e6,
            postgres_s / count * 1e6,
            dead,
            live_bytes,
        )

    @property
    def _per_batch(self) -> int:
        return int(self._rate * BATCH_S)

    async def _submit(self, first: int, batches: int) -> int:
        """Submit the jobs, each batch some time before its first instant; return the last one."""
        step = int(BATCH_S * 1_000_000)
        async with AsyncClient(self.server.url) as client:
            for number in range(batches):
                begin = first + number * step
                await asyncio.sleep((begin - AHEAD_US - time.time_ns() // 1000) / 1_000_000)
                instants = [begin + n * step // self._per_batch for n in range(self._per_batch)]
                await client.submit_many([{"task": "stamp", "run_at": _at(at)} for at in instants])
        return first + batches * step

    async def session(self) -> asyncpg.Connection:
        """Return a session of the database."""
        return await asyncpg.connect(self._address)

    async def dead(self, session: asyncpg.Connection) -> tuple[int, int]:
        """Return the dead rows of jobs, and the bytes of the indexes of those that wait."""
        return await session.fetchval(_DEAD), int(await session.fetchval(_SIZE, LIVE))


def _at(instant_us: int) -> datetime:
    return datetime.fromtimestamp(instant_us / 1_000_000, UTC)


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the three phases."""
    with postgres.cluster() as socket, postgres.database(socket) as address:
        bench = Bench(directory, socket, address, arguments.rate)
        with bench.server:
            run(_measure(bench, arguments, results))


async def _measure(bench: Bench, arguments: argparse.Namespace, results: Results) -> None:
    await bench.phase(arguments.warm)
    alone = await bench.phase(arguments.alone)
    _add(results, "alone", alone)
    holder = await bench.session()
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetchval(f"SELECT count(*) FROM {SCHEMA}.shard")
    _add(results, "beside an old snapshot", await bench.phase(arguments.held), alone)
    await holder.close()
    released = time.monotonic()
    _add(results, "after it", await bench.phase(arguments.alone), alone)
    session = await bench.session()
    await asyncio.sleep(max(0.0, released + SHRINK_S - time.monotonic()))
    dead, live_bytes = await bench.dead(session)
    results.add("dead rows of jobs 2 min after it", dead, "count", alone.dead, "alone")
    results.add("indexes of waiting jobs 2 min after it", live_bytes, "bytes")
    await session.close()


def _add(results: Results, what: str, found: Phase, alone: Phase | None = None) -> None:
    def add(name: str, value: float, unit: str, floor: float | None) -> None:
        results.add(f"{what}: {name}", value, unit, floor if alone else None, "alone")

    first = alone or found
    add("jobs", found.completed, "/s", first.completed)
    for share in ("p50", "p99"):
        add(f"lateness {share}", found.lateness_us[share], "us", first.lateness_us[share])
    add("CPU of a job, server", found.server_us, "us", first.server_us)
    add("CPU of a job, PostgreSQL", found.postgres_us, "us", first.postgres_us)
    add("dead rows of jobs", found.dead, "count", first.dead)
    add("indexes of waiting jobs", found.live_bytes, "bytes", first.live_bytes)


OPTIONS = (
    Option("rate", 1_000, 100, "jobs a second"),
    Option("warm", 20, 2, "seconds before the first phase"),
    Option("alone", 120, 5, "seconds of the phases without the snapshot"),
    Option("held", 600, 5, "seconds of the phase beside it"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
