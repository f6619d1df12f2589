"""Runs one row on the schedo that is first on the path, and prints what a job took.

    python -m bench.compare.work ROW SHARE

It uses only the public API, because the commits that are compared differ inside. SHARE is the share
of the row's usual number of jobs.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from bench.compare.judge import Sample
from bench.peers import schedo_embedded, schedo_served
from bench.peers.served_app import APP
from bench.peers.work import Mode, Work
from bench.server.process import Server
from bench.timed import time_embedded

RATE = 200
SECONDS = 3.0


def run_embedded(directory: Path, mode: Mode, batch: int, count: int) -> Sample:
    """Run the jobs in this process; its processor time counts from opening to closing."""
    work = Work(mode=mode, count=count, batch=batch)
    measure = schedo_embedded.stream if mode == "stream" else schedo_embedded.drain
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        began = time.process_time()
        result = runner.run(measure(directory / "bench.db", work))
        cpu_s = time.process_time() - began
    return Sample(cpu_s / count * 1e6, result.total_s / count * 1e6)


def run_served(directory: Path, count: int) -> Sample:
    """Stream jobs over HTTP; the processor time is that of the server and its child processes."""
    with (
        Server(directory, app=APP) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        began = server.cpu_s
        result = runner.run(schedo_served.measure(server, Work(count=count)))
        cpu_s = server.cpu_s - began
    return Sample(cpu_s / count * 1e6, result.total_s / count * 1e6)


def run_timed(directory: Path, seconds: float) -> Sample:
    """Run timed jobs at a steady rate; instead of the wall time, return the median lateness."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        timed = runner.run(time_embedded(directory / "bench.db", RATE, seconds))
    count = len(timed.lateness_us)
    return Sample(timed.cpu_s / count * 1e6, statistics.median(timed.lateness_us))


# What a row runs in a directory, for a share of its usual number of jobs.
ROWS: dict[str, Callable[[Path, float], Sample]] = {
    "embedded stream, batches of 1,000": lambda place, share: run_embedded(
        place, "stream", 1_000, int(20_000 * share)
    ),
    "embedded stream, batches of 100": lambda place, share: run_embedded(
        place, "stream", 100, int(20_000 * share)
    ),
    "embedded, one at a time": lambda place, share: run_embedded(
        place, "stream", 1, int(3_000 * share)
    ),
    "embedded drain, batches of 1,000": lambda place, share: run_embedded(
        place, "drain", 1_000, int(20_000 * share)
    ),
    "served stream, batches of 1,000": lambda place, share: run_served(place, int(20_000 * share)),
    f"{RATE} timed jobs/s": lambda place, share: run_timed(place, max(1.0, SECONDS * share)),
}


def main() -> None:
    row, share = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="schedo-compare-") as directory:
        print(json.dumps(ROWS[row](Path(directory), float(share))))


if __name__ == "__main__":
    main()
