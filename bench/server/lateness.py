"""The lateness of job starts, beside many jobs that are due in the far future.

The jobs are durable, due at Poisson instants, and submitted ahead. Each setting has three figures:

  embedded   an async handler in the engine's own loop, in this process: the handler's clock - due
  server     `schedo serve`: the start of the job in the store - due
  child      `schedo serve`: the clock of the handler in a child process - due

The floor is a bare timerfd loop in Python at the same instants.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.embedded import fire
from bench.figures import percentiles, poisson_offsets_us
from bench.floors import measure_timerfd
from bench.server.connection import batch_request, run, send_all, until_idle
from bench.server.evidence import NotDone, check_completed, query_store
from bench.server.filling import fill
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, positive_numbers, run_script, whole_numbers

BATCH = 1_000
SHOWN = ("p50", "p99", "max")
BUCKETS_US = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 100_000)
LATENESS = """
SELECT started_at - due_at, CAST(CAST(result AS TEXT) AS INTEGER) - due_at FROM job
WHERE task = 'stamp' AND payload = ?"""


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure each setting, with a store file for each number and distance of armed jobs."""
    settings = [(0, 0)] if 0 in arguments.armed else []
    settings += [(n, hours) for n in arguments.armed if n for hours in arguments.hours]
    for armed, hours in settings:
        place = directory / f"{armed}-{hours}"
        place.mkdir()
        if armed:
            fill(place / "bench.db", armed, hours * 3600.0)
        beside = f", {armed:,} other jobs due in {hours} h" if armed else ", no other job"
        _measure_rates(arguments, place, beside, results)


def _measure_rates(
    arguments: argparse.Namespace, place: Path, beside: str, results: Results
) -> None:
    floors: dict[int, dict[str, int]] = {}
    dues: dict[int, list[int]] = {}
    for rate in arguments.rates:
        dues[rate] = poisson_offsets_us(rate, rate * arguments.seconds)
        start = time.time_ns() // 1000 + 100_000
        floors[rate] = percentiles(measure_timerfd([start + at for at in dues[rate]]))
        late = run(fire(place / "bench.db", dues[rate]))
        _add(results, f"embedded, {rate:,}/s{beside}", late, floors[rate])
    total = 0
    with Server(place, "--concurrency", "1000", app=NOOP_APP) as server:
        for number, rate in enumerate(arguments.rates):
            run(_fire(server, dues[rate], number))
            total += len(dues[rate])
        server.restart()
        results.check(check_completed(server.store, "stamp", total))
        for number, rate in enumerate(arguments.rates):
            rows = query_store(server.store, LATENESS, f'{{"run":{number}}}'.encode())
            _add(results, f"server, {rate:,}/s{beside}", [row[0] for row in rows], floors[rate])
            _add(results, f"child, {rate:,}/s{beside}", [row[1] for row in rows], floors[rate])


def _add(results: Results, what: str, late: Sequence[int], floor: dict[str, int]) -> None:
    if min(late) < 0:
        raise NotDone(f"{what}: a job started {-min(late)} us early")
    found = percentiles(late)
    for share in SHOWN:
        results.add(f"{what}: {share}", found[share], "us", floor[share], "timerfd")
    if not results.is_quiet:
        print(f"    {_histogram(late)}")


def _histogram(late: Sequence[int]) -> str:
    """Return the number of values up to each bound, in one line."""
    parts, below = [], 0
    for bound in BUCKETS_US:
        count = sum(each <= bound for each in late)
        if count > below:
            parts.append(f"<={bound} us: {count - below}")
        below = count
    rest = len(late) - below
    return "  ".join([*parts, *([f"more: {rest}"] if rest else [])])


async def _fire(server: Server, offsets_us: Sequence[int], number: int) -> None:
    """Submit all jobs ahead in batches; return when all have ended."""
    start = time.time_ns() // 1000 + 2_000_000 + 150 * len(offsets_us)
    jobs = [
        {"task": "stamp", "payload": {"run": number}, "run_at": _instant(start + at)}
        for at in offsets_us
    ]
    batches = [batch_request(jobs[at : at + BATCH]) for at in range(0, len(jobs), BATCH)]
    await send_all(server, batches, 2)
    if time.time_ns() // 1000 > start:
        raise NotDone(f"{len(jobs)} jobs took too long to submit ahead")
    await asyncio.sleep((start + offsets_us[-1]) / 1_000_000 - time.time() + 0.2)
    await until_idle(server, 0.25)


def _instant(us: int) -> str:
    whole, part = divmod(us, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{part:06d}Z"


OPTIONS = (
    Option("rates", "100,1000,5000,10000", "100,1000", "firings a second", positive_numbers),
    Option("armed", "0,100000,1000000", "0,10000", "other jobs that wait", whole_numbers),
    Option("hours", "1,4", "1", "hours until those are due", positive_numbers),
    Option("seconds", 5, 2, "how long each setting is measured"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
