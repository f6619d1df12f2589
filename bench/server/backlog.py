"""The drain of a large backlog through the public API with all defaults, embedded and served.

All jobs are in the store before any runs. Embedded, a second program then runs them. Served, their
queue is paused while they are submitted; then the server is killed with SIGKILL and started again,
and the time runs from the first start to the last end, by the server's clock. The floor is a bare
SQLite table of three columns, whose rows are updated by id, 500 rows a commit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.peers import bare_sqlite, schedo_embedded
from bench.peers.schedo_served import submit
from bench.peers.served_app import APP
from bench.peers.work import Work
from bench.server.connection import run, until_idle
from bench.server.evidence import check_all_completed, query_store
from bench.server.process import Server
from bench.server.script import Option, Results, run_script
from schedo.client import AsyncClient

POLL_S = 0.5
ELAPSED = "SELECT max(ended_at) - min(started_at) FROM job"


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the backlog embedded, then served."""
    count = arguments.jobs
    work = Work(mode="drain", count=count)
    floor = count / bare_sqlite.commit_rows(directory / "bare.db", work).total_s
    store = directory / "embedded.db"
    drained = run(schedo_embedded.drain(store, work))
    for what, seconds in (("submit", drained.submit_s), ("drain", drained.total_s)):
        results.add(f"embedded, {count:,} jobs: {what}", count / seconds, "/s", floor, "updates")
    results.check(f"embedded: {check_all_completed(store, count)}")
    store.unlink()
    server = Server(directory, app=APP)
    with server:
        run(_submit(server, work))
        results.add(f"server's memory after {count:,} submits", server.memory_bytes[0], "bytes")
        server.kill()
        results.add(f"start to ready, {count:,} jobs queued", server.start_ready(), "s")
        run(_drain(server, work))
        results.add(f"server's memory after {count:,} jobs", server.memory_bytes[0], "bytes")
    results.check(f"served, after kill -9: {check_all_completed(server.store, count)}")
    ((elapsed_us,),) = query_store(server.store, ELAPSED)
    rate = count / elapsed_us * 1_000_000
    results.add(f"served, {count:,} jobs: drain", rate, "/s", floor, "updates")
    results.note("SQLite: 500 rows a commit; schedo: batches of 1,000, all settings as they are")


async def _submit(server: Server, work: Work) -> None:
    async with AsyncClient(server.url) as client:
        await client.pause_queue(work.queue(0))
        await submit(client, work)


async def _drain(server: Server, work: Work) -> None:
    async with AsyncClient(server.url) as client:
        await client.resume_queue(work.queue(0))
    await until_idle(server, POLL_S)


OPTIONS = (Option("jobs", 1_000_000, 10_000, "jobs that wait"),)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
