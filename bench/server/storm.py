"""The latency of the API while very many cron schedules fire at the same second.

The schedules are created over HTTP, all with the same cron expression. From two seconds before they
are due until all runs have ended, other connections submit a job and read it, at a steady rate. The
floors are the same requests to an empty endpoint, and to the server before the schedules exist.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.figures import percentiles
from bench.server.connection import (
    Connection,
    Load,
    connect,
    job_request,
    request,
    run,
    send_all,
    until_idle,
)
from bench.server.evidence import NotDone, check_completed, query_store
from bench.server.process import NOOP_APP, Process, Server, empty_server
from bench.server.script import Option, Results, run_script

TRIAL = 500  # paused schedules, created first to estimate how long creating the others will take
PROBE_PAUSE_S = 0.01
CALM_S = 2.0
CONNECTIONS = 32
RUNS = """
SELECT count(*), count(DISTINCT schedule_id), count(DISTINCT scheduled_for),
    max(started_at) - min(due_at), max(ended_at) - min(due_at)
FROM job WHERE trigger = 'schedule'"""


class Storm(NamedTuple):
    """The measurements of one storm."""

    puts: Load
    calm_us: list[int]
    storm_us: list[int]


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the storm."""
    count = arguments.schedules
    with empty_server(directory) as empty:
        least = percentiles(run(_probe_for(empty, CALM_S)))
    with Server(directory, "--concurrency", "1000", app=NOOP_APP) as server:
        storm = run(_storm(server, count))
        server.restart()
        probes = len(storm.calm_us) // 2 + len(storm.storm_us) // 2
        results.check(check_completed(server.store, "noop", count + probes))
        ((runs, schedules, instants, started_us, ended_us),) = query_store(server.store, RUNS)
    if (runs, schedules, instants) != (count, count, 1):
        raise NotDone(f"{count} schedules made {runs} runs of {schedules} at {instants} instants")
    results.check(f"{count:,} schedules fired once each, all for the same instant")
    results.add("schedules put, 32 connections", storm.puts.rate, "/s")
    calm, found = percentiles(storm.calm_us), percentiles(storm.storm_us)
    for share in ("p50", "p99", "max"):
        results.add(f"API, idle server: {share}", calm[share], "us", least[share], "empty endpoint")
        what = f"API, {count:,} schedules firing: {share}"
        results.add(what, found[share], "us", calm[share], "idle server")
    results.add(f"{count:,} schedules: due to last start", started_us, "us")
    results.add(f"{count:,} schedules: due to last end", ended_us, "us")
    results.add(f"{count:,} schedules: runs ended a second", count / ended_us * 1_000_000, "/s")


async def _storm(server: Server, count: int) -> Storm:
    calm = await _probe_for(server, CALM_S)
    trial = await _put(server, "trial", TRIAL, {"cron": "0 0 1 1 *", "paused": True})
    due = int(time.time() + 10 + 2 * count / trial.rate)
    at = datetime.fromtimestamp(due, UTC)
    cron = f"{at.second} {at.minute} {at.hour} * * *"
    puts = await _put(server, "storm", count, {"cron": cron})
    if time.time() > due - CALM_S:
        raise NotDone(f"{count} schedules took too long to put")
    await asyncio.sleep(due - CALM_S - time.time())
    ended = asyncio.create_task(_until_over(server, due))
    seen = await _probe(server, ended)
    return Storm(puts, calm, seen)


async def _put(server: Server, prefix: str, count: int, fields: dict[str, object]) -> Load:
    """Create `count` schedules that differ only in their names."""
    body = json.dumps({**fields, "tz": "UTC", "task": "noop"}).encode()
    names = [f"{prefix}-{n}" for n in range(count)]
    requests = [request("PUT", f"/v1/schedules/{name}", body) for name in names]
    puts = await send_all(server, requests, CONNECTIONS)
    refused = [reply for reply in puts.replies if reply.status != 201]
    if refused:
        raise NotDone(f"{len(refused)} schedules were refused: {refused[0].body!r}")
    return puts


async def _until_over(server: Server, due: float) -> None:
    await asyncio.sleep(due + 0.5 - time.time())
    await until_idle(server, 0.5)


async def _probe_for(server: Process, seconds: float) -> list[int]:
    return await _probe(server, asyncio.create_task(asyncio.sleep(seconds)))


async def _probe(server: Process, until: asyncio.Task[None]) -> list[int]:
    """Submit a job and read it, repeatedly; return the duration of each request in microseconds."""
    connection = await connect(server)
    took: list[int] = []
    while not until.done():
        submitted = await _timed(connection, job_request({"task": "noop"}), took)
        path = f"/v1/jobs/{json.loads(submitted)['id']}"
        await _timed(connection, request("GET", path), took)
        await asyncio.sleep(PROBE_PAUSE_S)
    connection.close()
    await until
    return took


async def _timed(connection: Connection, asked: bytes, took: list[int]) -> bytes:
    began = time.perf_counter_ns()
    reply = await connection.ask(asked)
    took.append((time.perf_counter_ns() - began) // 1000)
    if reply.status >= 400:
        raise NotDone(f"the API answered {reply.status}: {reply.body[:200]!r}")
    return reply.body


OPTIONS = (Option("schedules", 100_000, 2_000, "cron schedules that fire together"),)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
