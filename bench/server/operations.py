"""One operation that cancels a million waiting jobs, beside a steady load and a kill -9.

The jobs are due in a day. `schedo bench` puts the load on the server: first alone, then beside an
operation that cancels all waiting jobs. At half of them the server is killed and started again. At
the end each of them is cancelled once, and no other job is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.server.evidence import NotDone, query_store
from bench.server.filling import fill
from bench.server.process import NOOP_APP, TREE, Server, make_environment
from bench.server.script import Option, Results, run_script
from schedo.client import Client, bulk
from schedo.client.messages import Record

POLL_S = 0.2
WHERE = {"task": "far"}
STATES = "SELECT task, state, count(*) FROM job GROUP BY task, state"


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the load alone and beside the operation; kill the server in the middle of another."""
    fill(directory / "bench.db", arguments.jobs, 86_400.0)
    with Server(directory, app=NOOP_APP) as server:
        _add_load(results, "alone", _end_load(_begin_load(server, arguments)))
        load = _begin_load(server, arguments)
        with Client(server.url) as client:
            number = client.send(bulk.begin_operation("cancel", WHERE))["id"]
            began, cpu_s = time.perf_counter(), server.cpu_s
            _add_load(results, "beside the operation", _end_load(load))
            done = _follow(client, number, 0)["done"]
            results.add("jobs cancelled beside the load", done / _since(began), "/s")
            results.add("processor time of the server meanwhile", server.cpu_s - cpu_s, "s")
            half = _follow(client, number, arguments.jobs // 2)["done"]
        server.kill()
        server.start_ready()
        began = time.perf_counter()
        with Client(server.url) as client:
            whole = _follow(client, number, arguments.jobs)
        if half < arguments.jobs:
            rate = (arguments.jobs - half) / _since(began)
            results.add("jobs cancelled after kill -9, without load", rate, "/s")
    _check(server, whole, arguments, results)


def _since(began: float) -> float:
    return time.perf_counter() - began


def _begin_load(server: Server, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    count = str(arguments.rate * arguments.seconds)
    words = ["-m", "schedo", "bench", "--task", "noop", "--rate", str(arguments.rate), "--json"]
    return subprocess.Popen(
        [sys.executable, *words, "--count", count, "--batch", "20", "--url", server.url],
        cwd=TREE,
        env=make_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _end_load(load: subprocess.Popen[str]) -> Record:
    report, _ = load.communicate()
    if load.returncode:
        raise NotDone("the load was not completed")
    found: Record = json.loads(report)
    return found


def _add_load(results: Results, where: str, report: Record) -> None:
    for name, times in report["latency_us"].items():
        for share in ("p50", "p99"):
            results.add(f"load {where}: {name} {share}", times[share], "us")


def _follow(client: Client, number: str, done: int) -> dict[str, Any]:
    """Return the operation once it has done this number of jobs, or has ended."""
    while True:
        operation = client.send(bulk.get_operation(number))
        if operation["done"] >= done or "ended_at" in operation:
            return operation
        time.sleep(POLL_S)


def _check(
    server: Server, operation: Record, arguments: argparse.Namespace, results: Results
) -> None:
    states = {(task, state): count for task, state, count in query_store(server.store, STATES)}
    wanted = {
        ("far", "cancelled"): arguments.jobs,
        ("noop", "completed"): 2 * arguments.rate * arguments.seconds,
    }
    if states != wanted or operation["done"] != arguments.jobs:
        raise NotDone(f"the jobs are {states}, and the operation counts {operation['done']}")
    results.check(f"{arguments.jobs:,} jobs are cancelled, each once, and no other job")


OPTIONS = (
    Option("jobs", 1_000_000, 20_000, "jobs that wait and are cancelled"),
    Option("rate", 2_000, 200, "jobs of the load, a second"),
    Option("seconds", 60, 3, "how long the load lasts"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
