"""A full store beside an empty one: submits, timers, and each read of the API.

Submits and timers are measured in pairs, alternately on an empty and on a full store; a figure is
the median of its pairs, and its floor is that of the empty store. Each read is repeated on the full
store, while another connection looks up one job after the other: no read may keep those waiting.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import percentiles, poisson_offsets_us
from bench.server.connection import (
    DEADLINE_S,
    batch_request,
    connect,
    job_request,
    request,
    run,
    send_all,
)
from bench.server.evidence import NotDone, check_completed, query_store
from bench.server.full_filling import RARE, Full, fill_full
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, positive, run_script

SHOWN = ("p50", "p99")
LATENESS = """
SELECT started_at - due_at FROM job WHERE task = 'stamp' AND state = 'completed' AND payload = ?"""
BATCH = 500
AHEAD_US = 2_000_000  # timed jobs are submitted before the first one is due
JOBS = {
    "the newest jobs": "",
    "state": "&state=failed",
    "state and task, no such job": "&state=failed&task=task-3",
    "state and queue, no such job": "&state=expired&queue=queue-1",
    "queue and task, the oldest jobs": f"&queue={RARE}&task={RARE}",
    "queued jobs of a queue": "&state=queued&queue=queue-1",
    "scheduled jobs": "&state=scheduled",
    "tag and state": "&tag=tag-5&state=expired",
    "schedule and state": "&schedule=schedule-0000007&state=failed",
    "unique key": "&unique_key=k",
}
READS = {f"list: {name}": f"/v1/jobs?limit=50{query}" for name, query in JOBS.items()} | {
    "list: 500 jobs": "/v1/jobs?limit=500",
    "500 schedules": "/v1/schedules?limit=500",
    "a schedule": "/v1/schedules/schedule-0000007",
    "queues": "/v1/queues",
    "metrics": "/metrics",
    "info": "/v1/info",
}


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure submits, timers and reads."""
    full = Full(arguments.ended, arguments.queued, arguments.scheduled, arguments.schedules)
    places = {"empty": directory / "empty", "full": directory / "full"}
    for place in places.values():
        place.mkdir()
    fill_full(places["full"] / "bench.db", full)
    found: dict[tuple[str, str], list[dict[str, int]]] = {}
    for number in range(arguments.pairs):
        for name, place in places.items():
            with Server(place, "--concurrency", "1000", app=NOOP_APP) as server:
                submits = run(_submit(server, arguments.submits))
                timers = run(_fire(server, arguments.rate, arguments.seconds, number))
                found.setdefault((name, "submit"), []).append(submits)
                found.setdefault((name, "start of a timed job"), []).append(timers)
    for what in ("submit", "start of a timed job"):
        for share in SHOWN:
            full_us, empty_us = (
                statistics.median(each[share] for each in found[name, what])
                for name in ("full", "empty")
            )
            results.add(f"{what}: {share}", full_us, "us", empty_us, "empty store")
    with Server(places["full"], app=NOOP_APP) as server:
        for name, path in READS.items():
            _add_read(results, name, *run(_read(server, path, arguments.repeats)))
    count = arguments.pairs * arguments.rate * arguments.seconds
    results.check(check_completed(places["full"] / "bench.db", "stamp", count))


def _add_read(results: Results, name: str, took: Sequence[int], beside: Sequence[int]) -> None:
    results.add(name, statistics.median(took), "us")
    results.add(f"{name}: the longest look-up beside it", max(beside), "us")


async def _submit(server: Server, count: int) -> dict[str, int]:
    """Submit jobs one at a time; return the percentiles of the times."""
    connection = await connect(server)
    await connection.get("/v1/queues")  # the store has counted its waiting jobs then
    connection.close()
    far = job_request({"task": "far", "delay": "1h"})
    load = await send_all(server, [far] * count, 1)
    return percentiles(load.latency_us)


async def _fire(server: Server, rate: int, seconds: int, number: int) -> dict[str, int]:
    """Let jobs become due at random instants; return the percentiles of their lateness."""
    offsets_us = poisson_offsets_us(rate, rate * seconds)
    jobs = [
        {"task": "stamp", "payload": {"run": number}, "delay": (AHEAD_US + at) / 1_000_000}
        for at in offsets_us
    ]
    batches = [batch_request(jobs[at : at + BATCH]) for at in range(0, len(jobs), BATCH)]
    await send_all(server, batches, 1)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            await asyncio.sleep(0.5)
            rows = query_store(server.store, LATENESS, f'{{"run":{number}}}'.encode())
            if len(rows) == len(jobs):
                return percentiles([late for (late,) in rows])


async def _read(server: Server, path: str, repeats: int) -> tuple[list[int], list[int]]:
    """Return the times of the read in microseconds, and those of the look-ups beside it."""
    reader, other = await connect(server), await connect(server)
    (newest,) = (await reader.get("/v1/jobs?limit=1&task=task-1"))["items"]
    beside: list[int] = []

    async def look_up() -> None:
        while True:
            began = time.perf_counter_ns()
            await other.get(f"/v1/jobs/{newest['id']}")
            beside.append((time.perf_counter_ns() - began) // 1000)

    looking = asyncio.create_task(look_up())
    took: list[int] = []
    while len(took) < repeats or not beside:
        began = time.perf_counter_ns()
        reply = await reader.ask(request("GET", path))
        took.append((time.perf_counter_ns() - began) // 1000)
        if reply.status != 200:
            raise NotDone(f"GET {path} was answered with {reply.status}: {reply.body!r}")
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    reader.close()
    other.close()
    return took, beside


OPTIONS = (
    Option("ended", 2_000_000, 20_000, "ended jobs in the full store", positive),
    Option("queued", 200_000, 2_000, "queued jobs in it", positive),
    Option("scheduled", 200_000, 2_000, "scheduled jobs in it", positive),
    Option("schedules", 100_000, 1_000, "schedules in it", positive),
    Option("pairs", 7, 1, "measurements of each store"),
    Option("submits", 500, 20, "jobs submitted one at a time"),
    Option("rate", 100, 50, "timed jobs a second"),
    Option("seconds", 5, 1, "how long timed jobs become due"),
    Option("repeats", 5, 1, "how often each read is made"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
