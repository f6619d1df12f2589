"""The time from a submit over HTTP to the handler's start, on an idle server.

Jobs run one after the other: the client reads the clock and submits, and the handler in a child
process reads the clock when it is called. The job is durable before it runs, so an fsync is part of
the time. The floor is a request to an empty endpoint plus one commit of a bare SQLite file.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from bench.figures import percentiles
from bench.floors import BareTable
from bench.server.connection import connect, job_request, run, send_all
from bench.server.evidence import NotDone, check_completed, query_store
from bench.server.process import NOOP_APP, Server, empty_server
from bench.server.script import Option, Results, run_script

PAUSE_S = 0.002


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the floor, then the server."""
    job = job_request({"task": "stamp"})
    with empty_server(directory) as empty:
        answers = run(send_all(empty, [job] * arguments.count, 1)).latency_us
    table = BareTable(directory / "bare.db")
    commits = commit_singly(table, arguments.count)
    table.close()
    floor = percentiles([sum(pair) for pair in zip(answers, commits, strict=True)])
    with Server(directory, app=NOOP_APP) as server:
        sent = run(submit_singly(server, job, arguments.count))
        server.restart()
        results.check(check_completed(server.store, "stamp", arguments.count))
        found = read_starts(server)
    whole = percentiles([start - at for (start, _), at in zip(found, sent, strict=True)])
    inside = percentiles([row[1] for row in found])
    for share in ("p50", "p99", "max"):
        what = f"submit to handler start: {share}"
        results.add(what, whole[share], "us", floor[share], "empty endpoint + commit")
    results.add("accepted to started, by the server's clock: p50", inside["p50"], "us")


def commit_singly(table: BareTable, count: int) -> list[int]:
    """Commit rows one by one; return the duration of each commit in microseconds."""
    took = []
    for n in range(count):
        began = time.perf_counter_ns()
        table.insert([n])
        took.append((time.perf_counter_ns() - began) // 1000)
    return took


def read_starts(server: Server) -> list[tuple[int, int]]:
    """Return, for each job, the time of its handler's call and the time from creation to start."""
    rows = query_store(
        server.store,
        "SELECT CAST(CAST(result AS TEXT) AS INTEGER), started_at - created_at FROM job"
        " WHERE task = 'stamp' ORDER BY id",
    )
    return [(int(called), int(after)) for called, after in rows]


async def submit_singly(server: Server, job: bytes, count: int) -> list[int]:
    """Submit one job after the other; return the time at which each was sent."""
    connection = await connect(server)
    sent = []
    for _ in range(count):
        sent.append(time.time_ns() // 1000)
        reply = await connection.ask(job)
        if reply.status != 201:
            raise NotDone(f"a submit was answered with {reply.status}: {reply.body!r}")
        await asyncio.sleep(PAUSE_S)
    await asyncio.sleep(0.2)
    connection.close()
    return sent


OPTIONS = (Option("count", 2_000, 200, "jobs"),)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
