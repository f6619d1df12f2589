"""A take-over of the store by a second process: from kill -9 of the first to the first fire.

Inner bench: both processes embed the engine. The first one has a timer each 2 ms, and submits no-op
jobs at a rate. The second one has prepared its store, waits for the lock, opens, recovers and
fires. `python -m bench.server.takeover serve|wait|hold|bare STORE ...` are these processes, and
those of the floor: a bare script of 40 MB holds a lock and is killed; another one takes the lock,
opens a database, makes one commit and waits for a timer of 0 s. Floor and take-over alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import percentiles
from bench.server.connection import run
from bench.server.evidence import query_store
from bench.server.process import TREE, make_environment
from bench.server.script import Option, Results, run_script
from schedo.clock import SystemClock
from schedo.core.leases import AttemptResult, Completed, Lease, StopRequest
from schedo.core.model import JobSpec
from schedo.core.worker_pool import WorkerSpec
from schedo.descriptors import grow_table
from schedo.engine.engine import Engine
from schedo.store.sqlite.store import SqliteStore

BATCH = 100
TIMER_EVERY_US = 2_000
TIMERS = 5_000
FILLED_AT_ONCE = 5_000
LOADED_S = 1.0
STEPS = ("lock", "open", "recovered", "fire")


class Worker:
    """Completes each job at once, and notes when it got the first one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.fired: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def start(self, lease: Lease) -> None:
        if not self.fired.done():
            self.fired.set_result(time.monotonic())
        self._engine.report(AttemptResult(lease.key, Completed()))

    def stop(self, stop: StopRequest) -> None:
        raise AssertionError("nothing is stopped")


def _attach(engine: Engine) -> Worker:
    worker = Worker(engine)
    engine.attach(WorkerSpec("process-1", 100, frozenset({"noop"})), worker)
    return worker


async def _fill(store: str, waiting: int) -> None:
    """Make a store in which this many jobs wait; each kill gets a copy of its file."""
    engine = Engine(SqliteStore(store), SystemClock())
    await engine.start()
    later = JobSpec("later", delay_us=86_400_000_000)
    for done in range(0, waiting, FILLED_AT_ONCE):
        await engine.submit([later] * min(waiting - done, FILLED_AT_ONCE))
    await engine.stop()


async def _serve(store: str, rate: int) -> None:
    """Submit until killed."""
    grow_table()
    engine = Engine(SqliteStore(store), SystemClock())
    engine.bound_replay(True)
    await engine.start()
    now = engine.clock.now()
    timers = [JobSpec("noop", run_at=now + n * TIMER_EVERY_US) for n in range(TIMERS)]
    await engine.submit(timers)
    _attach(engine)
    print("ready", flush=True)
    pending: set[asyncio.Task[object]] = set()
    while True:
        if rate:
            task: asyncio.Task[object] = asyncio.create_task(
                engine.submit([JobSpec("noop")] * BATCH)
            )
            pending.add(task)
            task.add_done_callback(pending.discard)
        await asyncio.sleep(BATCH / rate if rate else 1.0)


async def _wait(path: str) -> None:
    """Wait for the lock, and print when each step of the take-over was done."""
    grow_table()
    store = SqliteStore(path)
    engine = Engine(store, SystemClock())
    await store.prepare()
    print("ready", flush=True)
    os.close(_await_lock(path))  # the store takes it again
    done = {"lock": time.monotonic()}
    opening = store.open

    async def open_() -> object:
        snapshot = await opening()
        done["open"] = time.monotonic()
        return snapshot

    store.open = open_  # type: ignore[method-assign, assignment]  # to see when it returns
    await engine.start()
    done["recovered"] = time.monotonic()
    done["fire"] = await _attach(engine).fired
    print(json.dumps(done), flush=True)
    await engine.stop()


def _await_lock(path: str) -> int:
    """Wait until this process has the lock of the store; return the descriptor."""
    descriptor = os.open(path + ".lock", os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _hold(path: str) -> None:
    kept = bytearray(40_000_000)
    with open(path + ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print("ready", flush=True)
        time.sleep(len(kept))


async def _bare(path: str) -> None:
    print("ready", flush=True)
    _await_lock(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS epoch (value)")
    await asyncio.sleep(0)
    print(json.dumps({"fire": time.monotonic()}), flush=True)
    connection.close()


@contextmanager
def _process(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.server.takeover", *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=TREE, env=make_environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", f"{arguments} has failed"
            yield process
        finally:
            process.kill()


def _kill(holder: tuple[object, ...], waiter: tuple[object, ...]) -> dict[str, float]:
    """Kill the holder; return the seconds from the kill to each step of the waiter."""
    with _process(*holder) as active, _process(*waiter) as standby:
        time.sleep(LOADED_S)
        killed_at = time.monotonic()
        active.kill()
        assert standby.stdout is not None
        done: dict[str, float] = json.loads(standby.stdout.readline())
        standby.wait()
    return {step: at - killed_at for step, at in done.items()}


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure idle and at the given rate, beside the floor of the same run."""
    filled = directory / "filled.db"
    run(_fill(str(filled), arguments.waiting))
    for rate in (0, arguments.rate):
        found, floor = [], []
        for number in range(arguments.kills):
            store = directory / f"{rate}-{number}.db"
            shutil.copyfile(filled, store)
            found.append(_kill(("serve", store, rate), ("wait", store)))
            bare = directory / f"{rate}-{number}-bare.db"
            floor.append(round(_kill(("hold", bare), ("bare", bare))["fire"] * 1e6))
            [(broken,)] = query_store(store, "PRAGMA integrity_check")
            assert broken == "ok", broken
            for path in directory.glob(f"{rate}-{number}*"):
                path.unlink()
        what = f"{rate:,} submits/s" if rate else "idle"
        least = percentiles(floor)
        for step in STEPS:
            times = percentiles([round(each[step] * 1e6) for each in found])
            for share in ("p50", "p99"):
                results.add(f"{what}: kill to {step}, {share}", times[share], "us", least[share])
    load = os.getloadavg()[0]
    results.check(f"{2 * arguments.kills} stores are intact; the load average is {load:.1f}")


OPTIONS = (
    Option("kills", 20, 2, "how often a server is killed, idle and at the rate"),
    Option("rate", 10_000, 1_000, "submits a second, in batches"),
    Option("waiting", 100_000, 5_000, "jobs that wait for tomorrow"),
)

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", path, rate]:
            run(_serve(path, int(rate)))
        case ["wait", path]:
            run(_wait(path))
        case ["hold", path]:
            _hold(path)
        case ["bare", path]:
            run(_bare(path))
        case _:
            run_script(__doc__, measure, OPTIONS)
