"""Where the time of one lonely job goes: the stages of a submit over HTTP, one at a time.

Each line is the p50 of a step minus the p50 of the step that it contains, so the lines of the
submit add up to the whole. The steps run in short turns, one after the other, so that a busy moment
of the machine meets all of them. The engine, the store and the bare steps run in this process, the
empty endpoint and the server in processes of their own. The jobs are due in an hour, except in the
last step, whose task runs in the process of the engine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from sqlite3 import connect as connect_bare

from bench.embedded import embedded, probe_job
from bench.figures import percentiles
from bench.floors import BareTable
from bench.server import connection as http
from bench.server.evidence import check_waiting
from bench.server.process import Process, Server, empty_server
from bench.server.script import Option, Results, run_script
from schedo.core.commands import Submit
from schedo.core.scheduler import Scheduler
from schedo.store.sqlite.connection import Connection
from schedo.store.sqlite.store import SqliteStore

Step = Callable[[], Awaitable[object]]
ROUNDS = 20
HOUR_US = 3_600_000_000


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure all steps, and print the differences."""
    server = Server(directory)
    with empty_server(directory) as empty, server:
        p50 = http.run(_measure(directory, empty, server, arguments.count))
        server.restart()
        results.check(check_waiting(server.store, "later", ROUNDS * (arguments.count // ROUNDS)))
    rest = p50["response"] - p50["empty"] - p50["submit"]
    results.add("request and response of an empty endpoint", p50["empty"], "us")
    results.add("bare commit", p50["bare"], "us")
    results.add("to the writer's thread and back", p50["switch"], "us")
    results.add("the rest of a commit", p50["commit"] - p50["bare"] - p50["switch"], "us")
    results.add("scheduler, turn and committer", p50["submit"] - p50["commit"], "us")
    results.add("HTTP, JSON, checks", rest, "us")
    floor = p50["empty"] + p50["bare"]
    results.add("submit to response", p50["response"], "us", floor, "empty endpoint + bare commit")
    results.add("durable to start in the same process", p50["start"] - p50["submit"], "us")


async def _measure(directory: Path, empty: Process, server: Process, count: int) -> dict[str, int]:
    """Return the p50 of each step."""
    async with AsyncExitStack() as stack:
        steps: dict[str, Step] = {}
        for enter in (_bare_steps, _store_steps, _engine_steps):
            steps |= await stack.enter_async_context(enter(directory))
        steps |= await stack.enter_async_context(_http_steps(empty, server))
        took: dict[str, list[int]] = {name: [] for name in steps}
        for _ in range(ROUNDS):
            for name, step in steps.items():
                took[name] += [await _time(step) for _ in range(count // ROUNDS)]
    return {name: percentiles(each)["p50"] for name, each in took.items()}


async def _time(step: Step) -> int:
    """Return how long the step takes in microseconds."""
    began = time.perf_counter_ns()
    await step()
    return (time.perf_counter_ns() - began) // 1000


@asynccontextmanager
async def _bare_steps(directory: Path) -> AsyncIterator[dict[str, Step]]:
    table, numbers = BareTable(directory / "bare.db"), iter(range(1 << 30))
    thread = Connection(lambda: connect_bare(":memory:", check_same_thread=False))
    await thread

    async def commit() -> None:
        table.insert([next(numbers)])

    yield {"bare": commit, "switch": lambda: thread.run(lambda _: None)}
    await thread.close()
    table.close()


@asynccontextmanager
async def _store_steps(directory: Path) -> AsyncIterator[dict[str, Step]]:
    store = SqliteStore(directory / "store.db")
    snapshot = await store.open()
    scheduler = Scheduler(epoch=snapshot.epoch, last_id=0, random=lambda: 0.5)

    async def commit() -> None:
        now = time.time_ns() // 1000
        scheduler.apply(Submit([probe_job(now + HOUR_US)]), now)
        await store.commit(scheduler.take_changes())
        scheduler.committed()

    yield {"commit": commit}
    await store.close()


@asynccontextmanager
async def _engine_steps(directory: Path) -> AsyncIterator[dict[str, Step]]:
    async with (
        embedded(directory / "later.db") as (later, _),
        embedded(directory / "now.db") as (now, probe),
    ):

        async def submit() -> None:
            due_at = later.clock.now() + HOUR_US
            await later.submit([probe_job(due_at)], view=lambda job: job.id)

        async def start() -> None:
            await now.submit([probe_job()], view=lambda job: job.id)
            await probe.ran(1)
            probe.lateness_us.clear()

        yield {"submit": submit, "start": start}


@asynccontextmanager
async def _http_steps(empty: Process, server: Process) -> AsyncIterator[dict[str, Step]]:
    job = http.job_request({"task": "later", "payload": {"n": 1}, "delay": "1h"})
    floor, whole = await http.connect(empty), await http.connect(server)
    yield {"empty": lambda: floor.ask(job), "response": lambda: whole.ask(job)}
    floor.close()
    whole.close()


OPTIONS = (Option("count", 2_000, 200, "times that each step is measured"),)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
