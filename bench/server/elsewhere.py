"""Lateness in a cluster whose only workers poll another server than the one that has the jobs.

Two servers without an application share a PostgreSQL on this machine. One of them gets jobs that
are due at Poisson instants; remote workers run them. The figure is the time from due to the arrival
of the lease at a worker, by this process's clock. The floor is the same with workers that poll the
server that has the jobs.

The workers are connections of this process, which shares the machine with the servers.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.figures import percentiles, poisson_offsets_us
from bench.peers import postgres
from bench.server.cluster import Cluster
from bench.server.connection import batch_request, run, send_all, until_idle
from bench.server.evidence import NotDone
from bench.server.process import Process
from bench.server.script import Option, Results, run_script
from bench.server.workers import ReportingWorkers, Workers

BATCH = 500
SHOWN = ("p50", "p99", "max")
# By the connections of a worker. With two, one is for its polls, and one for its reports.
KINDS = {1: Workers, 2: ReportingWorkers}
AHEAD_S = 2.0  # between the submit and the first instant


async def _measure(
    owner: Process, polled: Process, arguments: argparse.Namespace
) -> dict[str, int]:
    """Return how late workers that poll one server get the jobs of another one."""
    late_us: list[int] = []

    def took(lease: dict[str, Any], now: float) -> None:
        due = datetime.fromisoformat(lease["scheduled_for"]).timestamp()
        late_us.append(round((now - due) * 1_000_000))

    offsets = poisson_offsets_us(arguments.rate, arguments.rate * arguments.seconds)
    kind = KINDS[arguments.connections]
    async with kind(polled, arguments.workers, arguments.slots, took):
        start = time.time() + AHEAD_S
        jobs = [{"task": "noop", "run_at": _instant(start + at / 1e6)} for at in offsets]
        batches = [batch_request(jobs[at : at + BATCH]) for at in range(0, len(jobs), BATCH)]
        await send_all(owner, batches, 1)
        if time.time() > start:
            raise NotDone("the jobs took too long to submit ahead")
        await asyncio.sleep(start + offsets[-1] / 1e6 - time.time() + 0.2)
        await until_idle(owner, 0.1)
    if len(late_us) != len(jobs):
        raise NotDone(f"{len(late_us)} of {len(jobs)} jobs ran")
    return percentiles(late_us)


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure both."""
    with (
        postgres.cluster() as socket,
        postgres.database(socket) as address,
        Cluster(directory, address, 2, app=None) as cluster,
    ):
        run(cluster.until_shared())
        owner, gateway = cluster.servers
        least = run(_measure(owner, owner, arguments))
        found = run(_measure(owner, gateway, arguments))
    what = f"{arguments.rate:,} jobs/s, due to worker"
    for share in SHOWN:
        results.add(f"{what}: {share}", found[share], "us", least[share], "it polls the owner")
    results.check(f"{2 * arguments.rate * arguments.seconds:,} jobs ran once each")


OPTIONS = (
    Option("rate", 200, 50, "jobs a second"),
    Option("seconds", 20, 2, "seconds of load"),
    Option("workers", 4, 2, "workers that take jobs"),
    Option("slots", 16, 4, "slots of each"),
    Option("connections", 2, 2, "of each, 1 or 2; with 1, its polls bring the results"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
