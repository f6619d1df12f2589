"""Event streams: what 100 of them cost the server, and what readers that never read cost.

  idle     a server that runs some jobs a second, by itself and with the streams of 100 overviews
           of the page: its processor time and its memory
  load     timed jobs at a high rate, and then a stream of submits, alternately without streams and
           with 100 that have all topics: how late jobs start, and how many end a second
  deaf     beside a load, clients that ask for a stream and never read: the memory of the server,
           and the requests and the stream of others

The clients are in this process, which shares the machine with the server.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.figures import percentiles
from bench.server.connection import batch_request, connect, request, run, send_all, until_idle
from bench.server.evidence import NotDone, check_completed
from bench.server.followers import ALL, OVERVIEW, follow, hang_up, open_deaf
from bench.server.full_load import fire_timed
from bench.server.page_load import put_schedules, submitting
from bench.server.process import NOOP_APP, Server, read_cpu_s, read_memory_bytes
from bench.server.script import Option, Results, positive, run_script

CALM_RATE, BUSY_RATE = 20, 500  # jobs a second
BATCH = 1_000
SETTLE_S = 1.0
PROBE_S = 0.02
SHOWN = ("p50", "p99")
ALONE = "without streams"


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure streams on a server that does little, on a busy one, and deaf readers."""
    for name, each in (("idle", _measure_idle), ("load", _measure_load), ("deaf", _measure_deaf)):
        place = directory / name
        place.mkdir()
        each(place, arguments, results)


def _measure_idle(place: Path, arguments: argparse.Namespace, results: Results) -> None:
    with Server(place, app=NOOP_APP) as server:
        alone, beside, memory = run(_idle(server, arguments))
    what = f"{arguments.streams} streams of the overview"
    results.add(f"{what}: more of a core", max(0.0, beside - alone), "share")
    results.add(f"{what}: the server altogether", beside, "share", alone, ALONE)
    results.add(f"{what}: more memory", memory, "bytes")


async def _idle(server: Server, arguments: argparse.Namespace) -> tuple[float, float, int]:
    """Return the server's share of a core without and with streams, and how much more it holds."""
    shares: dict[bool, list[float]] = {False: [], True: []}
    grown: list[int] = []
    await put_schedules(server)
    async with submitting(server, CALM_RATE):
        hang_up(await follow(server, arguments.streams, OVERVIEW))  # imports, and what is kept
        await asyncio.sleep(SETTLE_S)
        for number in range(2 * arguments.pairs):
            with_streams = number % 2 == 1
            before = read_memory_bytes(server.pid)
            opened = await follow(server, arguments.streams if with_streams else 0, OVERVIEW)
            await asyncio.sleep(SETTLE_S)
            spent, began = read_cpu_s(server.pid), time.perf_counter()
            await asyncio.sleep(arguments.seconds)
            elapsed = time.perf_counter() - began
            shares[with_streams].append((read_cpu_s(server.pid) - spent) / elapsed)
            if with_streams:
                grown.append(read_memory_bytes(server.pid) - before)
                if min(each.events["tick"] for each in opened) < arguments.seconds:
                    raise NotDone("a stream did not bring a tick each second")
            hang_up(opened)
    alone, beside = (statistics.median(shares[each]) for each in (False, True))
    return alone, beside, round(statistics.median(grown))


def _measure_load(place: Path, arguments: argparse.Namespace, results: Results) -> None:
    found: dict[bool, list[Load]] = {False: [], True: []}
    with Server(place, "--concurrency", "1000", app=NOOP_APP) as server:
        for number in range(2 * arguments.pairs):
            with_streams = number % 2 == 1
            count = arguments.streams if with_streams else 0
            found[with_streams].append(run(_load(server, arguments, number, count)))
        server.restart()  # this flushes the write buffer, so that the tables have all jobs
        count = 2 * arguments.pairs
        for task, each in (("stamp", arguments.rate * arguments.seconds), ("noop", arguments.jobs)):
            results.check(check_completed(server.store, task, count * each))
    what = f"{arguments.streams} streams"
    for name, unit, read in (
        (f"{arguments.rate:,} timed jobs/s, {what}: p50", "us", lambda load: load.late["p50"]),
        (f"{arguments.rate:,} timed jobs/s, {what}: p99", "us", lambda load: load.late["p99"]),
        (f"jobs ended, {what}", "/s", lambda load: load.rate),
        (f"processor time of the server, {what}", "s", lambda load: load.cpu_s),
    ):
        _add_pairs(name, [*map(read, found[True])], [*map(read, found[False])], unit, results)


class Load(NamedTuple):
    """One round of timed jobs and of a stream of submits."""

    late: dict[str, int]  # percentiles of the timed jobs' lateness in microseconds
    rate: float  # jobs of the stream that end a second
    cpu_s: float  # of the server's own process, for all of these jobs


def _add_pairs(
    what: str, beside: Sequence[float], alone: Sequence[float], unit: str, results: Results
) -> None:
    """Add the median with streams beside that without, and note the median ratio of the pairs."""
    results.add(what, statistics.median(beside), unit, statistics.median(alone), ALONE)
    ratio = statistics.median(one / other for one, other in zip(beside, alone, strict=True))
    results.note(f"{what}: the median of the ratios of the pairs is {ratio:.2f}")


async def _load(server: Server, arguments: argparse.Namespace, number: int, count: int) -> Load:
    """Return a round beside this number of streams."""
    opened = await follow(server, count, ALL)
    spent = read_cpu_s(server.pid)
    late = await fire_timed(server, arguments.rate, arguments.seconds, number)
    jobs = [{"task": "noop", "payload": {"n": n}} for n in range(arguments.jobs)]
    batches = [batch_request(jobs[at : at + BATCH]) for at in range(0, len(jobs), BATCH)]
    began = time.perf_counter()
    await send_all(server, batches, 4)
    await until_idle(server)
    rate = len(jobs) / (time.perf_counter() - began)
    cpu_s = read_cpu_s(server.pid) - spent
    hang_up(opened)
    return Load(late, rate, cpu_s)


def _measure_deaf(place: Path, arguments: argparse.Namespace, results: Results) -> None:
    with Server(place, app=NOOP_APP) as server:
        run(_deafen(server, arguments, results))


async def _deafen(server: Server, arguments: argparse.Namespace, results: Results) -> None:
    await put_schedules(server)
    async with submitting(server, BUSY_RATE):
        hang_up(await follow(server, 1, ALL))
        await asyncio.sleep(SETTLE_S)
        alone = await _probe(server, arguments.seconds)
        before, (reader,) = read_memory_bytes(server.pid), await follow(server, 1, ALL)
        sockets = await open_deaf(server, arguments.deaf, ALL)
        beside = await _probe(server, arguments.deaf_seconds)
        grown = read_memory_bytes(server.pid) - before
        ticks, missed = reader.events["tick"], reader.events["gap"] + reader.events["reset"]
        for sock in sockets:
            sock.close()
    what = f"{arguments.deaf} readers that never read"
    results.add(f"{what}, {arguments.deaf_seconds} s: more memory", grown, "bytes")
    for share in SHOWN:
        name = f"{what}: GET /v1/summary, {share}"
        results.add(name, beside[share], "us", alone[share], "without them")
    if missed or ticks < arguments.deaf_seconds - 1:
        raise NotDone(f"another stream brought {ticks} ticks and missed something {missed} times")
    results.check(f"beside them, another stream brought {ticks} ticks and missed nothing")


async def _probe(server: Server, seconds: int) -> dict[str, int]:
    """Return the percentiles of a small request's time."""
    connection = await connect(server)
    took: list[int] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter_ns()
        await connection.ask(request("GET", "/v1/summary"))
        took.append((time.perf_counter_ns() - began) // 1000)
        await asyncio.sleep(PROBE_S)
    connection.close()
    return percentiles(took)


OPTIONS = (
    Option("streams", 100, 10, "event streams", positive),
    Option("pairs", 7, 1, "measurements without and with streams", positive),
    Option("seconds", 5, 2, "how long each takes", positive),
    Option("rate", 5_000, 200, "timed jobs a second", positive),
    Option("jobs", 20_000, 1_000, "jobs of a stream of submits", positive),
    Option("deaf", 300, 20, "readers that never read", positive),
    Option("deaf-seconds", 20, 3, "how long they stay", positive),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
