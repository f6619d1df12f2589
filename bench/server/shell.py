"""Commands a second: /bin/true, 16 at a time, each a durable job with its output captured.

The jobs are submitted in batches. The time runs from the first submit until all ends are durable.
The floor is `xargs -P16` in the same run: the mean of one run before and one after, because the
speed of a shared machine changes from one second to the next.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.floors import run_xargs
from bench.server.connection import batch_request, run, send_all, until_idle
from bench.server.evidence import check_completed
from bench.server.process import Server
from bench.server.script import Option, Results, run_script

BATCH = 500


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the server between two runs of xargs."""
    count, at_once = arguments.count, arguments.at_once
    before = run_xargs(count, at_once)
    server = Server(directory, "--allow-shell", "--concurrency", str(at_once))
    with server:
        rate = run(_run_commands(server, count))
        floor = (before + run_xargs(count, at_once)) / 2
        results.add(f"commands, {at_once} at a time", rate, "/s", floor, f"xargs -P{at_once}")
        server.restart()
        results.check(check_completed(server.store, "shell", count))


async def _run_commands(server: Server, count: int) -> float:
    job = {"task": "shell", "payload": {"command": ["/bin/true"]}}
    sizes = [min(BATCH, count - at) for at in range(0, count, BATCH)]
    batches = [batch_request([job] * size) for size in sizes]
    began = time.perf_counter()
    await send_all(server, batches, 1)
    await until_idle(server)
    rate = count / (time.perf_counter() - began)
    return rate


OPTIONS = (
    Option("count", 5_000, 500, "commands"),
    Option("at-once", 16, 16, "how many run at a time"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
