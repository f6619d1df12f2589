"""What is done to a full store: single submits, timed jobs, and reads beside look-ups."""

from __future__ import annotations

import asyncio
import time

from bench.figures import percentiles, poisson_offsets_us
from bench.server.connection import (
    DEADLINE_S,
    batch_request,
    connect,
    job_request,
    request,
    send_all,
)
from bench.server.evidence import NotDone, query_store
from bench.server.process import Server

LATENESS = """
SELECT started_at - due_at FROM job WHERE task = 'stamp' AND state = 'completed' AND payload = ?"""
BATCH = 500
AHEAD_US = 2_000_000  # timed jobs are submitted before the first one is due


async def count_waiting(server: Server) -> None:
    """Return when the store has counted its waiting jobs."""
    connection = await connect(server)
    await connection.get("/v1/queues")
    connection.close()


async def submit_singly(server: Server, count: int) -> dict[str, int]:
    """Submit jobs one at a time; return the percentiles of the times."""
    far = job_request({"task": "far", "delay": "1h"})
    load = await send_all(server, [far] * count, 1)
    return percentiles(load.latency_us)


async def fire_timed(server: Server, rate: int, seconds: int, number: int) -> dict[str, int]:
    """Let jobs become due at random instants; return the percentiles of their lateness."""
    offsets_us = poisson_offsets_us(rate, rate * seconds)
    jobs = [
        {"task": "stamp", "payload": {"run": number}, "delay": (AHEAD_US + at) / 1_000_000}
        for at in offsets_us
    ]
    batches = [batch_request(jobs[at : at + BATCH]) for at in range(0, len(jobs), BATCH)]
    began = time.perf_counter()
    await send_all(server, batches, 1)
    # Until then nothing is read: the reading takes a processor.
    await asyncio.sleep((AHEAD_US + offsets_us[-1]) / 1_000_000 - (time.perf_counter() - began))
    async with asyncio.timeout(DEADLINE_S):
        while True:
            await asyncio.sleep(0.5)
            rows = query_store(server.store, LATENESS, f'{{"run":{number}}}'.encode())
            if len(rows) == len(jobs):
                return percentiles([late for (late,) in rows])


async def time_read(server: Server, path: str, repeats: int) -> tuple[list[int], list[int]]:
    """Return the times of the read in microseconds, and those of the look-ups beside it."""
    reader, other = await connect(server), await connect(server)
    (newest,) = (await reader.get("/v1/jobs?limit=1&task=task-1"))["items"]
    beside: list[int] = []

    async def look_up() -> None:
        while True:
            began = time.perf_counter_ns()
            await other.get(f"/v1/jobs/{newest['id']}")
            beside.append((time.perf_counter_ns() - began) // 1000)

    looking = asyncio.create_task(look_up())
    took: list[int] = []
    while len(took) < repeats or not beside:
        began = time.perf_counter_ns()
        reply = await reader.ask(request("GET", path))
        took.append((time.perf_counter_ns() - began) // 1000)
        if reply.status != 200:
            raise NotDone(f"GET {path} was answered with {reply.status}: {reply.body!r}")
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    reader.close()
    other.close()
    return took, beside
