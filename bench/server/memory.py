"""The server's memory and its time to start, with many jobs in its file.

Up to 100,000 jobs are submitted over HTTP; more are written into the file by SQL (see filling.py).
Each measurement starts a new server on the file. "Ready" means that /readyz answers 200; "working"
means that a command submitted after the start has run. The server is killed between two starts. The
floor is an empty process of uvicorn and Starlette.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import statistics
import time
from pathlib import Path

from bench.server.connection import batch_request, connect, job_request, run, send_all
from bench.server.evidence import NotDone, check_waiting
from bench.server.filling import fill
from bench.server.process import ROOT, Server, empty_server
from bench.server.script import Option, Results, run_script, whole_numbers

BY_HTTP_MAX = 100_000
BATCH = 1_000
SETTLE_S = 2.0
FLOOR = "empty uvicorn"
TRUE = {"task": "shell", "payload": {"command": ["true"]}}


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure each number of jobs."""
    compileall.compile_dir(str(ROOT / "schedo"), quiet=1)
    floor_bytes, floor_s = _measure_empty(directory, arguments.starts)
    for count in arguments.jobs:
        place = directory / str(count)
        place.mkdir()
        server = Server(place, "--allow-shell")
        name = f"{count:,} jobs scheduled"
        if count > BY_HTTP_MAX:
            fill(server.store, count, 3600.0)
        elif count:
            with server:
                run(_submit(server, count))
                time.sleep(SETTLE_S)
                what = f"memory after {name} over HTTP"
                results.add(what, server.rss_bytes, "bytes", floor_bytes, FLOOR)
        _measure_starts(server, name, arguments.starts, (floor_bytes, floor_s), results)
        if count:
            results.check(check_waiting(server.store, "far", count))
        for path in place.glob("bench.db*"):
            path.unlink()


def _measure_starts(
    server: Server, name: str, starts: int, floor: tuple[float, float], results: Results
) -> None:
    ready, working, held = [], [], []
    for _ in range(starts):
        try:
            began = time.perf_counter()
            ready.append(server.start_ready())
            run(_run_true(server))
            working.append(time.perf_counter() - began)
            time.sleep(SETTLE_S)
            held.append(server.rss_bytes)
        finally:
            server.kill()
    results.add(f"memory, {name}", statistics.median(held), "bytes", floor[0], FLOOR)
    results.add(f"start to ready, {name}", statistics.median(ready), "s", floor[1], FLOOR)
    results.add(f"start to first job done, {name}", statistics.median(working), "s")


def _measure_empty(directory: Path, starts: int) -> tuple[float, float]:
    """Return the memory of an empty web server and the seconds until its first response."""
    held, ready = [], []
    for _ in range(starts):
        began = time.perf_counter()
        with empty_server(directory) as empty:
            run(send_all(empty, [job_request(TRUE)], 1))
            ready.append(time.perf_counter() - began)
            time.sleep(SETTLE_S / 4)
            held.append(empty.rss_bytes)
    return statistics.median(held), statistics.median(ready)


async def _submit(server: Server, count: int) -> None:
    job = {"task": "far", "payload": {"n": 1}, "delay": "1h"}
    sizes = [min(BATCH, count - at) for at in range(0, count, BATCH)]
    load = await send_all(server, [batch_request([job] * size) for size in sizes], 2)
    if any(reply.status != 200 for reply in load.replies):
        raise NotDone("a batch was refused")


async def _run_true(server: Server) -> None:
    """Run one command and wait until it has completed."""
    connection = await connect(server)
    submitted = (await connection.ask(job_request(TRUE))).json()
    async with asyncio.timeout(30):
        job = await connection.get(f"/v1/jobs/{submitted['id']}/wait?timeout=20s")
    connection.close()
    if job["state"] != "completed":
        raise NotDone(f"the probe job is {job['state']}")


OPTIONS = (
    Option("jobs", "0,100000,1000000,10000000", "0,20000", "jobs in the file", whole_numbers),
    Option("starts", 5, 2, "starts of each file; the median counts"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
