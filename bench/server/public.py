"""Durable throughput through the public API with all defaults, embedded and served.

  stream   from the first submit, with a worker up, until all jobs have ended durably
  drain    all jobs are in the store; from the start of a worker until all have ended durably

Jobs are submitted in batches of 1,000, one after the other: embedded with `enqueue_many`, served
with `AsyncClient.submit_many`. The floor is a bare SQLite table of three columns with the same
payloads, inserted and then updated by id, 500 rows a commit. In another run of each, the server is
killed in the middle.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

from bench.peers import bare_sqlite, schedo_embedded, schedo_served
from bench.peers.served_app import APP
from bench.peers.work import MODES, Work
from bench.server.connection import connect, run
from bench.server.evidence import check_all_completed
from bench.server.kill import check_embedded, check_served
from bench.server.process import Server, empty_server, read_memory_bytes
from bench.server.script import Option, Results, run_script

SHAPES = {
    "no-op jobs": Work(),
    "payloads of 1 KB": Work(payload_bytes=1_000),
    "10 tasks, 3 queues": Work(tasks=10),
    "unique keys and tags": Work(keyed=True),
    "3,000 queues": Work(queues=3_000),
}
FLOOR = "bare commits"


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure each kind of job; then one submit at a time, and the memory."""
    for shape, work in SHAPES.items():
        place = directory / shape
        place.mkdir()
        measure_shape(place, shape, replace(work, count=arguments.count), results)
    _measure_singly(directory, max(1, arguments.count // 10), results)
    results.note("SQLite: 500 rows a commit; schedo: batches of 1,000, all settings as they are")


def measure_shape(place: Path, shape: str, work: Work, results: Results) -> None:
    """Measure the jobs embedded and served, then kill the server in the middle of each."""
    for mode in MODES:
        timed = replace(work, mode=mode)
        floor = work.count / bare_sqlite.commit_rows(place / f"{mode}.bare", timed).total_s
        store = place / f"{mode}.db"
        measure_mode = schedo_embedded.stream if mode == "stream" else schedo_embedded.drain
        total_s = run(measure_mode(store, timed)).total_s
        results.add(f"embedded {mode}, {shape}", work.count / total_s, "/s", floor, FLOOR)
        results.check(f"embedded {mode}, {shape}: {check_all_completed(store, work.count)}")
        _measure_served(place, shape, timed, floor, results)
    for check in (check_embedded, check_served):
        directory = place / check.__name__
        directory.mkdir()
        results.check(f"{shape}, {check(directory, work)}")


def _measure_served(place: Path, shape: str, work: Work, floor: float, results: Results) -> None:
    directory = place / f"served-{work.mode}"
    directory.mkdir()
    with Server(directory, app=APP) as server:
        total_s = run(schedo_served.measure(server, work)).total_s
        results.add(f"served {work.mode}, {shape}", work.count / total_s, "/s", floor, FLOOR)
        if work == Work(count=work.count):
            _add_memory(server, directory, results)
    done = check_all_completed(server.store, work.count)
    results.check(f"served {work.mode}, {shape}: {done}")


def _add_memory(server: Server, directory: Path, results: Results) -> None:
    """Add the memory of the server and its children after the jobs, and note the workers' slots."""
    own, *children = server.memory_bytes
    with empty_server(directory) as empty:
        floor = read_memory_bytes(empty.pid)
    what = "memory with an application: server"
    results.add(what, own, "bytes", floor, "empty uvicorn")
    results.add("memory with an application: its child processes", sum(children), "bytes")
    slots = Counter(each["slots"] for each in run(_read_workers(server)))
    workers = ", ".join(f"{count} x {size} slots" for size, count in sorted(slots.items()))
    results.note(f"served: workers {workers}; {len(children)} child processes of the server")


async def _read_workers(server: Server) -> list[dict[str, int]]:
    connection = await connect(server)
    workers: list[dict[str, int]] = (await connection.get("/v1/workers"))["items"]
    connection.close()
    return workers


def _measure_singly(directory: Path, count: int, results: Results) -> None:
    """Measure jobs that are submitted one after the other; each submit waits for its commit."""
    work = Work(count=count, batch=1)
    bare = bare_sqlite.commit_rows(directory / "single.bare", work, batch=1)
    store = directory / "single.db"
    result = run(schedo_embedded.stream(store, work))
    for what, seconds, floor_s in (
        ("embedded, one submit at a time, jobs run at once", result.submit_s, bare.submit_s),
        ("embedded, one at a time to durable ends", result.total_s, bare.total_s),
    ):
        results.add(what, count / seconds, "/s", count / floor_s, "bare commits of 1 row")
    results.check(f"one at a time: {check_all_completed(store, count)}")


OPTIONS = (Option("count", 20_000, 2_000, "jobs of each kind"),)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
