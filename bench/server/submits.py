"""Single submits over HTTP: POST /v1/jobs, each answered after its fsync.

The jobs are due in an hour, so only their submits are measured; in the last row they run at once,
in the child processes of an application. One floor is an empty endpoint of uvicorn and Starlette
with the same client; the other is a bare SQLite file that commits as many rows at once as there are
connections. The server is killed before the jobs are counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.figures import percentiles
from bench.floors import commit_groups
from bench.server.connection import Load, job_request, run, send_all, until_idle
from bench.server.evidence import NotDone, check_all_completed, check_waiting
from bench.server.process import NOOP_APP, Process, Server, empty_server
from bench.server.script import Option, Results, positive_numbers, run_script

Fields = dict[str, object]
LATER: Fields = {"task": "later", "payload": {"n": 1}, "delay": "1h"}
NOW: Fields = {"task": "noop", "payload": {"n": 1}}


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
            _add_rate(results, name, load, floor.rate, bare)
            took, least = percentiles(load.latency_us), percentiles(floor.latency_us)
            for share in ("p50", "p99"):
                what = f"submit to response, {name}: {share}"
                results.add(what, took[share], "us", least[share], "empty endpoint")
        server.kill()
        server.start_ready()
        results.check(check_waiting(server.store, "later", total) + ", after kill -9")
    _measure_running(directory, max(1, arguments.count // 5), results)


def _measure_running(directory: Path, count: int, results: Results) -> None:
    """Measure jobs that run while the next ones are submitted, one submit at a time."""
    place = directory / "running"
    place.mkdir()
    with empty_server(place) as empty, Server(place, app=NOOP_APP) as server:
        floor = _load(empty, count, 1)
        bare = commit_groups(place / "bare.db", count, 1, is_completing=False)
        load = _load(server, count, 1, NOW)
        _add_rate(results, "1 connection, jobs run at once", load, floor.rate, bare)
        server.kill()
        server.start_ready()
        run(until_idle(server))
    results.check(f"{check_all_completed(server.store, count)}, after kill -9")


def _add_rate(results: Results, name: str, load: Load, floor: float, bare: float) -> None:
    results.add(f"submits, {name}", load.rate, "/s", floor, "empty endpoint")
    results.add(f"submits, {name}", load.rate, "/s", bare, "bare commits")


def _load(server: Process, count: int, connections: int, fields: Fields = LATER) -> Load:
    load = run(send_all(server, [job_request(fields)] * count, connections))
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
