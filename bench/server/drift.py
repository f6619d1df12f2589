"""A day of steady load in virtual time, to find out whether instants, memory or speed drift.

The script runs the real engine and the real SQLite store with a clock that jumps from alarm to
alarm. Schedules fire at several intervals, and jobs are submitted a minute ahead; each job must run
once, in order, at its instant. Ended jobs are pruned after an hour, so memory, file and speed must
stay as they were after the first hour. The floor of the speed is a bare SQLite file with as many
commits. A day makes half a million commits; `--directory /dev/shm` avoids the disk.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from bench.floors import commit_groups
from bench.server.connection import run
from bench.server.evidence import NotDone
from bench.server.script import Option, Results, run_script
from schedo.core.leases import AttemptResult, Completed
from schedo.core.limits import HOUR, MINUTE, SECOND
from schedo.core.model import JobSpec, Overlap, Rule, ScheduleSpec
from schedo.engine.engine import Engine
from schedo.store.base import Retention
from schedo.store.sqlite.store import SqliteStore
from schedo.tasks.runner import AttemptContext
from schedo.testing.clock import VirtualClock
from schedo.virtual_clock import Flushes
from schedo.worker.in_process import LocalWorker

T0 = 1_795_132_800 * SECOND  # 2026-11-20T00:00:00Z
INTERVALS_S = (2, 3, 5, 10, 30, 60, 300, 3600)
AHEAD = 60  # jobs submitted each minute, one due each second of the next
PRUNE_BATCH = 500
PRUNE_BATCHES = 2  # enough for the 130 jobs of a minute
KEPT = Retention(completed_us=HOUR)


class SteppingClock(VirtualClock):
    """A clock that advances only when all jobs that an instant has started have ended."""

    async def run_until(self, engine: Flushes, at: int) -> None:
        """Advance to the instant; stop at each instant for which the engine armed the clock."""
        await self._settle(engine)
        while self.armed_at is not None and self.armed_at <= at:
            await super().run_until(engine, self.armed_at)
            await self._settle(engine)
        self._now = max(self._now, at)

    async def _settle(self, engine: Flushes) -> None:
        # Three commits: a fire makes a job, the commit starts it, and its end is committed.
        for _ in range(3):
            await engine.flush()


class InstantCheck:
    """A task that compares the instant of each run with the next expected one of its series."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._next: dict[bytes, int] = {}
        self._steps: dict[bytes, int] = {}
        self.runs = 0
        self.late_us = 0
        self.errors = 0

    def expect(self, line: bytes, first: int, step: int) -> None:
        """Set the first instant of a series, and the distance between two instants."""
        self._next[line], self._steps[line] = first, step

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        line, instant = context.lease.payload or b"", context.lease.scheduled_for
        self.runs += 1
        self.late_us = max(self.late_us, self._clock.now() - instant)
        if instant != self._next[line]:
            self.errors += 1
        self._next[line] = instant + self._steps[line]
        return AttemptResult(context.lease.key, Completed(b"null"))


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure the given number of hours."""
    run(_measure(arguments.hours, directory, results))


async def _measure(hours: int, directory: Path, results: Results) -> None:
    clock = SteppingClock(T0)
    store = SqliteStore(directory / "bench.db")
    engine = Engine(store, clock, retention=KEPT)
    instant_check = InstantCheck(clock)
    worker = LocalWorker(engine, "bench", 100, {"instant_check": instant_check})
    rss: list[int] = []
    sizes: list[int] = []
    rates: list[float] = []
    await engine.start()
    worker.attach()
    try:
        await _put_schedules(engine, instant_check)
        for hour in range(hours):
            before, began = instant_check.runs, time.perf_counter()
            await _run_an_hour(engine, clock, T0 + hour * HOUR)
            rates.append((instant_check.runs - before) / (time.perf_counter() - began))
            rss.append(_rss_bytes())
            sizes.append(await store.size_bytes())
    finally:
        await worker.drain(5.0)
        await engine.stop()
    _check_runs(instant_check, hours, results)
    floor = commit_groups(directory / "bare.db", min(instant_check.runs, 5_000), 1)
    results.add("virtual lateness: max", instant_check.late_us, "us")
    results.add(f"memory after {hours} h", rss[-1], "bytes", rss[0], "after 1 h")
    results.add(f"file after {hours} h", sizes[-1], "bytes", sizes[min(1, hours - 1)], "after 2 h")
    results.add("jobs a second, last hour", rates[-1], "/s", rates[0], "first hour")
    results.add("jobs a second, last hour", rates[-1], "/s", floor, "bare commits")


async def _put_schedules(engine: Engine, instant_check: InstantCheck) -> None:
    for seconds in INTERVALS_S:
        line = b'{"every":%d}' % seconds
        rule = Rule(every_us=seconds * SECOND)
        job = JobSpec("instant_check", line)
        await engine.put_schedule(ScheduleSpec(f"s{seconds}", rule, job, overlap=Overlap.ALLOW))
        instant_check.expect(line, T0, seconds * SECOND)
    instant_check.expect(b"{}", T0 + MINUTE, SECOND)


async def _run_an_hour(engine: Engine, clock: VirtualClock, start: int) -> None:
    for minute in range(60):
        now = start + minute * MINUTE
        specs = [
            JobSpec("instant_check", b"{}", run_at=now + MINUTE + second * SECOND)
            for second in range(AHEAD)
        ]
        await engine.submit(specs, view=lambda job: job.id)
        await clock.run_until(engine, now + MINUTE - 1)
        for _ in range(PRUNE_BATCHES):
            await engine.store.prune(clock.now(), KEPT, PRUNE_BATCH)


def _check_runs(instant_check: InstantCheck, hours: int, results: Results) -> None:
    seconds = hours * 3600
    due = sum(-(-seconds // each) for each in INTERVALS_S) + seconds - 60
    if (instant_check.runs, instant_check.errors) != (due, 0):
        raise NotDone(
            f"{instant_check.runs} runs of {due}, {instant_check.errors} not at their instant"
        )
    results.check(f"{due:,} runs in {hours} h, none missing, none twice, each at its instant")


def _rss_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "Linux says how much a process holds"
    return int(found[1]) * 1024


OPTIONS = (Option("hours", 24, 2, "virtual hours"),)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
