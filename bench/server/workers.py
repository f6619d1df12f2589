"""Remote workers: lateness and rate of POST /v1/work, the cost of idle workers, invocations.

  work     many workers with several slots run no-op jobs at a steady rate: the time from due to
           dispatch, by the server's clock, and to the arrival of the lease, by this process's clock
  idle     many workers with an open poll: the server's memory and CPU time for each
  invoke   POST /v1/invoke and its response, one at a time, with two workers

The workers are connections of this process, which shares the machine with the server. The floor
of an invocation is two requests to an empty endpoint and two bare commits.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bench.figures import percentiles
from bench.floors import commit_groups
from bench.server.connection import (
    Connection,
    batch_request,
    connect,
    request,
    run,
    send_all,
    until_idle,
)
from bench.server.evidence import NotDone, check_completed, query_store
from bench.server.process import Process, Server, empty_server
from bench.server.script import Option, Results, run_script

BATCH = 500
SETTLE_S = 1.0
AGAIN_S = 0.05
GIVEN = "SELECT started_at - due_at FROM job"
WAIT_S = 60
Message = dict[str, Any]
Took = Callable[[dict[str, Any], float], None]


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure work, idle workers and invocations, each on a server of its own."""
    _measure_work(arguments, directory / "work", results)
    _measure_idle(arguments, directory / "idle", results)
    _measure_invoke(arguments, directory / "invoke", results)


class Workers:
    """Workers that run no-op jobs, each over one connection; a poll carries the last results."""

    def __init__(
        self,
        server: Process,
        count: int,
        slots: int,
        took: Took | None = None,
        name: str = "w",
    ) -> None:
        """took: called with each lease and when it came; name: what their names begin with."""
        self._server = server
        self._count = count
        self._slots = slots
        self._took = took
        self._name = name
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Workers:
        for number in range(self._count):
            connection = await connect(self._server)
            self._tasks.append(asyncio.create_task(self._work(f"{self._name}{number}", connection)))
        await asyncio.sleep(SETTLE_S)
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, name: str, connection: Connection) -> None:
        results: list[Message] = []
        while True:
            fields = {"running": [], "results": results, "wait": WAIT_S}
            results = self._run(await self._ask(name, connection, fields))

    async def _ask(self, name: str, connection: Connection, fields: Message) -> Message:
        """Return the response to a request, which is sent again while the shards move."""
        worker = {"worker": name, "session": "bench", "tasks": ["noop"], "slots": self._slots}
        body = json.dumps({**worker, **fields}).encode()
        while True:
            reply = await connection.ask(request("POST", "/v1/work", body))
            if reply.status == HTTPStatus.OK:
                answer: Message = reply.json()
                return answer
            if reply.status != HTTPStatus.SERVICE_UNAVAILABLE:
                raise NotDone(f"a worker was answered {reply.status}: {reply.body[:200]!r}")
            await asyncio.sleep(AGAIN_S)

    def _run(self, response: Message) -> list[Message]:
        """Run the jobs of the leases in a response, and return the results."""
        now, leases = time.time(), response["leases"]
        for lease in leases:
            if self._took is not None:
                self._took(lease, now)
        return [
            {"lease": lease["lease"], "outcome": "completed", "result": None} for lease in leases
        ]


class ReportingWorkers(Workers):
    """The same with two connections for each, as those of the SDKs: a poll stays open meanwhile."""

    async def _work(self, name: str, connection: Connection) -> None:
        results: list[Message] = []
        has_results = asyncio.Event()
        reporting = asyncio.create_task(self._report(name, results, has_results))
        try:
            while True:
                running = [each["lease"] for each in results]
                fields = {"running": running, "wait": WAIT_S}
                results += self._run(await self._ask(name, connection, fields))
                has_results.set()
        finally:
            reporting.cancel()

    async def _report(self, name: str, results: list[Message], has_results: asyncio.Event) -> None:
        """Report the results, each until it has arrived."""
        connection = await connect(self._server)
        while True:
            await has_results.wait()
            has_results.clear()
            if results:
                sent = [*results]
                await self._ask(name, connection, {"results": sent, "max_leases": 0})
                del results[: len(sent)]


def _measure_work(arguments: argparse.Namespace, place: Path, results: Results) -> None:
    place.mkdir()
    count = arguments.rate * arguments.seconds
    late_us: list[int] = []

    def took(lease: dict[str, Any], now: float) -> None:
        due = datetime.fromisoformat(lease["scheduled_for"]).timestamp()
        late_us.append(round((now - due) * 1_000_000))

    async def drive(server: Server) -> None:
        async with Workers(server, arguments.workers, arguments.slots, took):
            start = time.time() + 2.0 + count / 5_000
            jobs = [
                {"task": "noop", "run_at": _instant(start + n / arguments.rate)}
                for n in range(count)
            ]
            batches = [batch_request(jobs[at : at + BATCH]) for at in range(0, count, BATCH)]
            await send_all(server, batches, 2)
            if time.time() > start:
                raise NotDone("the jobs took too long to submit ahead")
            await asyncio.sleep(start + arguments.seconds - time.time() + 0.2)
            await until_idle(server, 0.1)

    with Server(place) as server:
        run(drive(server))
        server.restart()
        results.check(check_completed(server.store, "noop", count))
        given = percentiles([late for (late,) in query_store(server.store, GIVEN)])
    found = percentiles(late_us)
    what = f"{arguments.workers} workers x {arguments.slots} slots, {arguments.rate:,} jobs/s"
    for share in ("p50", "p99", "max"):
        results.add(f"{what}, due to given: {share}", given[share], "us")
        results.add(f"{what}, due to worker's start: {share}", found[share], "us")


def _measure_idle(arguments: argparse.Namespace, place: Path, results: Results) -> None:
    place.mkdir()

    async def drive(server: Server) -> tuple[int, float]:
        before = server.rss_bytes
        async with Workers(server, arguments.idle, 1):
            held = server.rss_bytes - before
            spent = _cpu_s(server)
            await asyncio.sleep(arguments.seconds)
            return held, (_cpu_s(server) - spent) / arguments.seconds

    with Server(place) as server:
        held, share = run(drive(server))
    results.add(f"{arguments.idle:,} idle workers: memory", held, "bytes")
    results.add(f"{arguments.idle:,} idle workers: processor a second", share * 1_000_000, "us")


def _cpu_s(server: Process) -> float:
    stat = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / 100


def _measure_invoke(arguments: argparse.Namespace, place: Path, results: Results) -> None:
    place.mkdir()
    asked = request("POST", "/v1/invoke", b'{"task":"noop","payload":{"n":1},"wait":"5s"}')

    async def time_all(server: Process, each: bytes, count: int) -> list[int]:
        return (await send_all(server, itertools.repeat(each, count), 1)).latency_us

    async def drive(server: Server) -> list[int]:
        async with Workers(server, 2, 4):
            return await time_all(server, asked, arguments.count)

    with empty_server(place) as empty:
        least = percentiles(run(time_all(empty, asked, arguments.count)))
    commit_us = 1_000_000 / commit_groups(place / "bare.db", 500, 1, is_completing=False)
    with Server(place) as server:
        found = percentiles(run(_within(drive(server))))
        server.restart()
        results.check(check_completed(server.store, "noop", arguments.count))
    for share in ("p50", "p99"):
        floor = 2 * (least[share] + commit_us)
        results.add(f"invoke: {share}", found[share], "us", floor, "2 x (empty endpoint + commit)")


async def _within(work: Awaitable[list[int]]) -> list[int]:
    async with asyncio.timeout(120):
        return await work


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


OPTIONS = (
    Option("workers", 100, 10, "workers that take jobs"),
    Option("slots", 10, 10, "slots of each"),
    Option("rate", 5_000, 500, "jobs a second"),
    Option("seconds", 5, 2, "how long"),
    Option("idle", 1_000, 100, "workers that only wait"),
    Option("count", 2_000, 200, "invocations"),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
