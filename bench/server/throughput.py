"""Durable throughput: from the first submit until every job has ended and its end is durable.

  embedded      the engine in this process, async handlers in its loop
  over HTTP     `schedo serve` with handlers in child processes, batches sent by this process

The floor is a bare SQLite file in which the same rows are inserted and then completed, with two
commits for each batch.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from bench.embedded import complete
from bench.floors import commit_groups
from bench.noop_app import read_tallies
from bench.server.connection import batch_request, job_request, run, send_all, until_idle
from bench.server.evidence import NotDone, check_completed, check_once, query_store
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, positive_numbers, run_script

FLOOR = "bare commits"
WARM_UP_S = 0.5  # until every child process has attached, so that they share the work


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure embedded and over HTTP, for each size of a batch."""
    for batch in arguments.batches:
        count = arguments.count if batch > 1 else max(1, arguments.count // 5)
        place = directory / f"batch-{batch}"
        place.mkdir()
        floor = commit_groups(place / "bare.db", count, batch)
        in_flight = min(arguments.in_flight, max(1, count // batch))
        path = place / "embedded.db"
        rate = run(complete(path, count, batch, in_flight))
        results.add(f"embedded, batches of {batch:,}", rate, "/s", floor, FLOOR)
        results.check(check_completed(path, "probe", count).replace("a restart", "a close"))
        _measure_http(place, batch, count, floor, in_flight, results)


def _measure_http(
    place: Path, batch: int, count: int, floor: float, connections: int, results: Results
) -> None:
    server = Server(place, "--concurrency", "1000", app=NOOP_APP)
    with server:
        rate = run(complete_by_http(server, count, batch, connections))
        results.add(f"over HTTP, batches of {batch:,}", rate, "/s", floor, FLOOR)
        server.restart()  # this flushes the write buffer, so that the tables have all jobs
        results.check(check_completed(server.store, "noop", count))
        results.check(check_once(read_tallies(place), count))
        ((own_us,),) = query_store(server.store, "SELECT max(ended_at) - min(created_at) FROM job")
        what = f"over HTTP, batches of {batch:,}, by the server's own clock"
        results.add(what, count / own_us * 1_000_000, "/s", floor, FLOOR)


async def complete_by_http(server: Server, count: int, batch: int, connections: int) -> float:
    """Submit the jobs; once all have ended, return the number of jobs a second."""
    jobs = [{"task": "noop", "payload": {"n": n}} for n in range(count)]
    if batch == 1:
        requests = [job_request(job) for job in jobs]
    else:
        requests = [batch_request(jobs[at : at + batch]) for at in range(0, count, batch)]
    await asyncio.sleep(WARM_UP_S)
    began = time.perf_counter()
    load = await send_all(server, requests, connections)
    refused = [reply for reply in load.replies if reply.status not in (200, 201)]
    if refused:
        raise NotDone(f"{len(refused)} requests were refused: {refused[0].body[:200]!r}")
    await until_idle(server)
    elapsed = time.perf_counter() - began
    return count / elapsed


OPTIONS = (
    Option("batches", "1,100,500,1000", "1,100", "jobs in one request", positive_numbers),
    Option("count", 50_000, 5_000, "jobs for each size; a fifth of it one by one"),
    Option("in-flight", 16, 16, "requests on their way at a time"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
