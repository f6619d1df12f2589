"""pgqueuer on PostgreSQL, in an environment of its own; see README.md for its settings."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.qm import QueueManager  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]

from bench.peers.work import Result, Tally, Work, print_result, read_work

BATCH_SIZE = 1_000
POLL = timedelta(milliseconds=5)


async def measure(dsn: str, work: Work) -> Result:
    """Submit the jobs while a worker runs, or before it starts."""
    client = Queries(AsyncpgDriver(await asyncpg.connect(dsn)))
    await client.install()
    worker = Worker(await asyncpg.connect(dsn), work)
    running = asyncio.create_task(worker.run()) if work.mode == "stream" else None
    if running is not None:
        await asyncio.sleep(1.0)  # the worker listens
    began, spent = time.perf_counter(), time.process_time()
    for batch in work.batches():
        payloads: list[bytes | None] = [json.dumps(work.payload(n)).encode() for n in batch]
        keys = [work.options(n).get("unique") for n in batch]
        tasks = [work.task(n) for n in batch]
        await client.enqueue(tasks, payloads, [0] * len(batch), dedupe_key=keys)
    submit_s = time.perf_counter() - began
    if running is None:
        began = time.perf_counter()
        running = asyncio.create_task(worker.run())
    await worker.done.wait()
    while await client.queue_size():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    total_s, cpu_s = time.perf_counter() - began, time.process_time() - spent
    worker.tally.check()
    worker.manager.shutdown.set()
    with suppress(TimeoutError):
        await asyncio.wait_for(running, 10)
    settings = f"batch_size {BATCH_SIZE}, polls each {POLL.total_seconds() * 1000:g} ms"
    about = f"pgqueuer {version('pgqueuer')}, {settings}"
    return Result(submit_s, total_s, about, {"program": cpu_s})


class Worker:
    """One queue manager with the no-op entrypoints."""

    def __init__(self, connection: Any, work: Work) -> None:
        self.tally = Tally(work.count)
        self.done = asyncio.Event()
        self.manager = QueueManager(Queries(AsyncpgDriver(connection)))
        self.manager.min_dequeue_poll_interval = POLL
        for task in range(work.tasks):
            self.manager.entrypoint(f"task{task}")(self._run)

    async def run(self) -> None:
        """Run jobs until the manager is shut down."""
        await self.manager.run(batch_size=BATCH_SIZE)

    async def _run(self, job: Any) -> None:
        if self.tally.ran(json.loads(job.payload)["n"]):
            self.done.set()


def main() -> None:
    """Do the work and print the result."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print_result(runner.run(measure(os.environ["PEERS_DSN"], read_work())))


if __name__ == "__main__":
    main()
