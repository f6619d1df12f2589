"""Timed jobs at a steady rate through the public API, beside a bare timerfd."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.floors import measure_timerfd
from bench.server.evidence import query_store
from bench.server.process import Server
from schedo import AsyncClient, Schedo

AHEAD_S = 1.0  # to submit the jobs, at least
SUBMIT_S = 0.002  # for each job
BATCH = 100  # submits at a time
CALM_S = 0.2


class Timed(NamedTuple):
    """How late the starts were in microseconds, and the processor time of all threads."""

    lateness_us: list[int]
    cpu_s: float
    seconds: float

    @property
    def cpu_share(self) -> float:
        """The share of one core."""
        return self.cpu_s / self.seconds


def make_instants(rate: int, seconds: float) -> list[int]:
    """Return the instants in microseconds, after the time that submitting a job for each takes."""
    count = int(rate * seconds)
    first = time.time_ns() // 1000 + int((AHEAD_S + SUBMIT_S * count) * 1_000_000)
    return [first + number * 1_000_000 // rate for number in range(count)]


def time_bare(rate: int, seconds: float) -> Timed:
    """Wait for the instants with a bare timerfd: the floor."""
    now = time.time_ns() // 1000
    instants = [now + number * 1_000_000 // rate for number in range(int(rate * seconds))]
    began, cpu = time.perf_counter(), time.process_time()
    lateness = measure_timerfd(instants)
    return Timed(lateness, time.process_time() - cpu, time.perf_counter() - began)


async def time_embedded(path: Path, rate: int, seconds: float) -> Timed:
    """Run an async no-op task at each instant; all jobs are durable before the first is due."""
    app = Schedo(path)
    lateness: list[int] = []
    done = asyncio.Event()

    @app.task
    async def stamp(due: int) -> None:
        lateness.append(time.time_ns() // 1000 - due)
        if len(lateness) == len(instants):
            done.set()

    async with app:
        instants = make_instants(rate, seconds)
        for first in range(0, len(instants), BATCH):
            part = instants[first : first + BATCH]
            await asyncio.gather(*(stamp.options(run_at=_at(due)).enqueue(due) for due in part))
        await _sleep_until(instants[0] / 1_000_000 - CALM_S)
        began, cpu = time.perf_counter(), time.process_time()
        await done.wait()
        seconds = time.perf_counter() - began
    # The application has ended, so the processor time includes every commit.
    return Timed(lateness, time.process_time() - cpu, seconds)


async def time_served(server: Server, rate: int, seconds: float) -> Timed:
    """Do the same with `schedo serve`; `read_lateness` finds the lateness in its store."""
    last = await submit_timed(server, rate, seconds)
    began, cpu = time.perf_counter(), server.cpu_s
    await _sleep_until(last / 1_000_000 + CALM_S)
    took = server.cpu_s - cpu
    return Timed([], took, time.perf_counter() - began)


async def submit_timed(server: Server, rate: int, seconds: float) -> int:
    """Submit the jobs; return just before the first instant, with the last one."""
    instants = make_instants(rate, seconds)
    async with AsyncClient(server.url) as client:
        for first in range(0, len(instants), BATCH):
            part = instants[first : first + BATCH]
            await client.submit_many([{"task": "stamp", "run_at": _at(due)} for due in part])
    await _sleep_until(instants[0] / 1_000_000 - CALM_S)
    return instants[-1]


def read_lateness(store: Path) -> list[int]:
    """Return how late the task `stamp` of bench.noop_app was called, in microseconds."""
    called = "CAST(CAST(result AS TEXT) AS INTEGER)"
    return [row[0] for row in query_store(store, f"SELECT {called} - due_at FROM job")]


async def _sleep_until(at_s: float) -> None:
    left = at_s - time.time()
    assert left > 0, "all jobs are submitted before the first is due"
    await asyncio.sleep(left)


def _at(instant_us: int) -> datetime:
    return datetime.fromtimestamp(instant_us / 1_000_000, UTC)
