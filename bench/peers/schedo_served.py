"""`schedo serve` with an application: jobs over HTTP, tasks in child processes, all defaults."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import uvloop

from bench.noop_app import read_tallies
from bench.peers.served_app import APP, TASKS
from bench.peers.work import Result, Tally, Work, print_result, read_work
from bench.server.connection import until_idle
from bench.server.process import Server, read_cpu_s
from schedo import __version__
from schedo.client import AsyncClient, operations
from schedo.errors import SchedoError


async def measure(server: Server, work: Work) -> Result:
    """Submit the jobs and wait until all have ended; to drain, pause all starts meanwhile."""
    assert work.tasks <= TASKS, f"the application has only {TASKS} tasks"
    async with AsyncClient(server.url) as client:
        if work.mode == "drain":
            await client.send(operations.pause_server({"scopes": ["starts"]}))
        began, before = time.perf_counter(), _read_cpu_s(server)
        await submit(client, work)
        submit_s = time.perf_counter() - began
        if work.mode == "drain":
            began = time.perf_counter()
            await client.send(operations.resume_server(["starts"]))
        await until_idle(server)
        total_s = time.perf_counter() - began
    spent = {part: cpu_s - before[part] for part, cpu_s in _read_cpu_s(server).items()}
    return Result(submit_s, total_s, f"schedo {__version__}, served, defaults", spent)


def _read_cpu_s(server: Server) -> dict[str, float]:
    own, *children = map(read_cpu_s, server.pids)
    return {"client": time.process_time(), "server": own, "child processes": sum(children)}


async def submit(client: AsyncClient, work: Work) -> None:
    """Submit the jobs; each is durable on return."""
    for batch in work.batches():
        await submit_batch(client, work, batch)


async def submit_batch(client: AsyncClient, work: Work, batch: Iterable[int]) -> None:
    """Submit jobs in one request; each is durable on return."""
    jobs = [
        {"task": work.task(n), "queue": work.queue(n), "payload": work.payload(n)} | work.options(n)
        for n in batch
    ]
    refused = [each for each in await client.submit_many(jobs) if isinstance(each, SchedoError)]
    assert not refused, f"{len(refused)} jobs were refused: {refused[0]}"


def main() -> None:
    """Do the work and print the result."""
    work = read_work()
    with tempfile.TemporaryDirectory() as directory:
        place, dsn = Path(directory), os.environ.get("PEERS_DSN")
        store = ["--store", dsn] if dsn else []
        with (
            Server(place, *store, app=APP) as server,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            result = runner.run(measure(server, work))
        tally = Tally(work.count)
        for number in read_tallies(place):
            tally.ran(number)
        tally.check()
        print_result(result)


if __name__ == "__main__":
    main()
