"""A full store beside an empty one: start, memory, submits, timers, and each read of the API.

First each read is repeated on the full store, while another connection looks up one job after the
other: no read may keep those waiting. Then submits and timers are measured alternately on an empty
store, on the full one, and on the full one while it prunes; a figure is the median of the rounds.
The floor of a full store is the empty one, and that of pruning the full store without it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.server.connection import DEADLINE_S, run
from bench.server.evidence import NotDone, check_completed, query_store
from bench.server.full_filling import RARE, SPACING_US, Full, fill_full
from bench.server.full_load import count_waiting, fire_timed, submit_singly, time_read
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, positive, run_script

WHATS, SHOWN = ("submit", "start of a timed job"), ("p50", "p99")
# The jobs of the full store are past this retention, and those of this run are not.
RETENTION = tuple(
    word
    for state in ("completed", "failed", "cancelled")
    for word in (f"--retention-{state}", "30m")
)
PRUNABLE_MIN = 1_000_000  # fewer are gone before the measurement ends
# The oldest job that retention may delete: the last runs of each schedule are kept.
OLDEST = """
SELECT created_at FROM job
WHERE state = 'completed' AND ended_at IS NOT NULL AND schedule_id IS NULL
ORDER BY ended_at LIMIT 1"""
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
    "text, no such job": "&q=nowhere",
    "value in the payload, no such job": "&payload.order=9781",
    "worker, no such job": "&worker=nobody",
}
READS = {f"list: {name}": f"/v1/jobs?limit=50{query}" for name, query in JOBS.items()} | {
    "list: 500 jobs": "/v1/jobs?limit=500",
    "500 schedules": "/v1/schedules?limit=500",
    "a schedule": "/v1/schedules/schedule-0000007",
    "queues": "/v1/queues",
    "metrics": "/metrics",
    "info": "/v1/info",
}


class Case(NamedTuple):
    """A server to measure."""

    place: Path
    options: tuple[str, ...] = ()


Found = dict[tuple[str, str], list[dict[str, int]]]  # by case and what is measured


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure starts and memory, reads, and then submits and timers."""
    full = Full(arguments.ended, arguments.queued, arguments.scheduled, arguments.schedules)
    cases = {"empty": Case(directory / "empty"), "full": Case(directory / "full")}
    for case in cases.values():
        case.place.mkdir()
    began = time.perf_counter()
    fill_full(cases["full"].place / "bench.db", full)
    results.note(f"the full store was made in {time.perf_counter() - began:.0f} s")
    _add_starts(cases, arguments.repeats, results)
    with Server(cases["full"].place, app=NOOP_APP) as server:
        for name, path in READS.items():
            _add_read(results, name, *run(time_read(server, path, arguments.repeats)))
        results.add("memory after the reads", server.memory_bytes[0], "bytes")
    if full.ended >= PRUNABLE_MIN:
        cases["pruning"] = Case(cases["full"].place, RETENTION)
    found = _alternate(cases, arguments, results)
    _add_ratios(found, "", "full", "empty", "empty store", results)
    if "pruning" in cases:
        _add_ratios(found, " beside pruning", "pruning", "full", "full store", results)
    count = arguments.pairs * arguments.rate * arguments.seconds * (len(cases) - 1)
    results.check(check_completed(cases["full"].place / "bench.db", "stamp", count))


def _add_starts(cases: Mapping[str, Case], repeats: int, results: Results) -> None:
    """Add the time to start and the memory when started."""
    ready: dict[str, list[float]] = {name: [] for name in cases}
    memory: dict[str, list[int]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            server = Server(case.place, app=NOOP_APP)
            try:
                ready[name].append(server.start_ready())
                run(count_waiting(server))
                memory[name].append(server.memory_bytes[0])
            finally:
                server.stop()
    for what, unit, each in (("start to ready", "s", ready), ("memory", "bytes", memory)):
        full, empty = (statistics.median(each[name]) for name in ("full", "empty"))
        results.add(what, full, unit, empty, "empty store")


def _alternate(cases: Mapping[str, Case], arguments: argparse.Namespace, results: Results) -> Found:
    """Return the percentiles of submits and timers in each case, one of each round."""
    found: Found = {}
    pruned: list[float] = []
    for number in range(arguments.pairs * len(cases)):
        name, case = [*cases.items()][number % len(cases)]
        with Server(case.place, "--concurrency", "1000", *case.options, app=NOOP_APP) as server:
            run(count_waiting(server))
            oldest = _await_pruning(server) if case.options else 0
            began = time.perf_counter()
            submits = run(submit_singly(server, arguments.submits))
            timers = run(fire_timed(server, arguments.rate, arguments.seconds, number))
            for what, each in zip(WHATS, (submits, timers), strict=True):
                found.setdefault((name, what), []).append(each)
            if case.options:
                count = (_oldest(server) - oldest) / SPACING_US
                pruned.append(count / (time.perf_counter() - began))
    if pruned:
        results.note(f"pruned meanwhile: {statistics.median(pruned):,.0f} jobs a second")
        if min(pruned) <= 0:
            raise NotDone("nothing was pruned while pruning was measured")
    return found


def _add_ratios(
    found: Found, beside: str, name: str, floor: str, floor_what: str, results: Results
) -> None:
    for what in WHATS:
        for share in SHOWN:
            value_us, floor_us = (
                statistics.median(each[share] for each in found[case, what])
                for case in (name, floor)
            )
            results.add(f"{what}{beside}: {share}", value_us, "us", floor_us, floor_what)


def _oldest(server: Server) -> int:
    ((created_at,),) = query_store(server.store, OLDEST)
    return int(created_at)


def _await_pruning(server: Server) -> int:
    """Return when the oldest job was created, once the server has begun to prune."""
    first = _oldest(server)
    deadline = time.perf_counter() + DEADLINE_S
    while time.perf_counter() < deadline:
        oldest = _oldest(server)
        if oldest != first:
            return oldest
        time.sleep(0.05)
    raise NotDone(f"the server did not prune within {DEADLINE_S:g} s")


def _add_read(results: Results, name: str, took: Sequence[int], beside: Sequence[int]) -> None:
    results.add(name, statistics.median(took), "us")
    results.add(f"{name}: the longest look-up beside it", max(beside), "us")


OPTIONS = (
    Option("ended", 10_000_000, 20_000, "ended jobs in the full store", positive),
    Option("queued", 200_000, 2_000, "queued jobs in it", positive),
    Option("scheduled", 200_000, 2_000, "scheduled jobs in it", positive),
    Option("schedules", 100_000, 1_000, "schedules in it", positive),
    Option("pairs", 7, 1, "measurements of each case"),
    Option("submits", 2_000, 20, "jobs submitted one at a time"),
    Option("rate", 100, 50, "timed jobs a second"),
    Option("seconds", 5, 1, "how long timed jobs become due"),
    Option("repeats", 5, 1, "how often each read and each start is made"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
