"""Single submits over HTTP: POST /v1/jobs, each answered after its fsync.

The jobs are due in an hour, so only their submits are measured. One floor is an empty endpoint of
uvicorn and Starlette with the same client; the other is a bare SQLite file that commits as many
rows at once as there are connections. The server is killed before the jobs are counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.figures import percentiles
from bench.floors import commit_groups
from bench.server.connection import Load, job_request, run, send_all
from bench.server.evidence import NotDone, check_waiting
from bench.server.process import Process, Server, empty_server
from bench.server.script import Option, Results, positive_numbers, run_script


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure each number of connections, against the empty endpoint first."""
    server = Server(directory)
    total = 0
    with empty_server(directory) as empty, server:
        for connections in arguments.connections:
            name = f"{connections} connection{'s' if connections > 1 else ''}"
            floor = _load(empty, arguments.count, connections)
            bare = commit_groups(
                directory / f"bare-{connections}.db",
                arguments.count,
                connections,
                is_completing=False,
            )
            load = _load(server, arguments.count, connections)
            total += len(load.replies)
            results.add(f"submits, {name}", load.rate, "/s", floor.rate, "empty endpoint")
            results.add(f"submits, {name}", load.rate, "/s", bare, "bare commits")
            took, least = percentiles(load.latency_us), percentiles(floor.latency_us)
            for share in ("p50", "p99"):
                what = f"submit to answer, {name}: {share}"
                results.add(what, took[share], "us", least[share], "empty endpoint")
        server.kill()
        server.start_ready()
        results.check(check_waiting(server.store, "later", total) + ", after kill -9")


def _load(server: Process, count: int, connections: int) -> Load:
    job = job_request({"task": "later", "payload": {"n": 1}, "delay": "1h"})
    load = run(send_all(server, [job] * count, connections))
    refused = [reply for reply in load.replies if reply.status != 201]
    if refused:
        raise NotDone(f"{len(refused)} submits were refused: {refused[0].body!r}")
    return load


OPTIONS = (
    Option("connections", "1,8,32,64,256", "1,32", "connections", positive_numbers),
    Option("count", 20_000, 2_000, "submits for each number of connections"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
