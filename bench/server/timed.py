"""Timed jobs at a steady rate through the public API with all defaults: lateness and CPU.

All jobs are durable before the first is due; no client waits for them. The processor time is that
of all threads, embedded of the program and served of the server and its child processes, from just
before the first instant until all ends are durable. The lateness is the handler's clock - the
instant. The floor is a bare timerfd loop in Python. In another run, the server is killed in the
middle and started again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.figures import percentiles
from bench.server.connection import run, until_idle
from bench.server.evidence import check_all_completed
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, run_script
from bench.timed import Timed, read_lateness, submit_timed, time_bare, time_embedded, time_served


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the floor, embedded and served."""
    rate, seconds = arguments.rate, arguments.seconds
    floor = time_bare(rate, seconds)
    store = directory / "embedded.db"
    _add(results, f"embedded, {rate:,}/s", run(time_embedded(store, rate, seconds)), floor)
    results.check(f"embedded: {check_all_completed(store, rate * seconds)}")
    with Server(directory, app=NOOP_APP) as server:
        timed = run(time_served(server, rate, seconds))
        server.restart()  # this flushes the write buffer, so that the tables have all jobs
        late = read_lateness(server.store)
        _add(results, f"served, {rate:,}/s", timed._replace(lateness_us=late), floor)
    results.check(f"served: {check_all_completed(server.store, rate * seconds)}")
    results.check(_check_kill(directory / "killed", rate))


def _add(results: Results, what: str, timed: Timed, floor: Timed) -> None:
    results.add(f"{what}: CPU of a core", timed.cpu_share, "share", floor.cpu_share, "timerfd")
    found, least = percentiles(timed.lateness_us), percentiles(floor.lateness_us)
    for share in ("p50", "p99"):
        results.add(f"{what}: {share}", found[share], "us", least[share], "timerfd")


def _check_kill(directory: Path, rate: int) -> str:
    """Kill a server while timed jobs run; return a sentence, or raise NotDone."""
    directory.mkdir()
    with Server(directory, app=NOOP_APP) as server:
        last = run(submit_timed(server, rate, 1.0))
        time.sleep(0.5)  # about a third of the jobs have ended
        server.kill()
        server.start_ready()
        time.sleep(max(0.0, last / 1_000_000 - time.time()) + 0.1)  # no job is due later
        run(until_idle(server))
    return f"served, after kill -9 in the middle: {check_all_completed(server.store, rate)}"


OPTIONS = (
    Option("rate", 200, 200, "jobs a second"),
    Option("seconds", 10, 2, "how long each is measured"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
