"""schedo inside this program, through its public API and with its defaults."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from bench.peers.work import Result, Tally, Work, print_result, read_work
from schedo import JobHandle, Schedo, __version__
from schedo.app.tasks import BoundTask
from schedo.errors import SchedoError

if TYPE_CHECKING:
    from schedo import NewJob  # older commits, which bench.compare runs, do not have it


class Program:
    """An application with no-op async tasks; its jobs wait at the gate until it opens."""

    def __init__(self, store: str | Path, work: Work, *, is_open: bool) -> None:
        self.app = Schedo(store, grace="0s")
        self._work = work
        self._tally = Tally(work.count)
        self._gate = asyncio.Event()
        self._done = asyncio.Event()
        if is_open:
            self._gate.set()
        self._tasks = [self.app.task(name=f"task{each}")(self._run) for each in range(work.tasks)]

    async def _run(self, n: int, filler: str = "") -> None:
        if not self._gate.is_set():
            await self._gate.wait()
        if self._tally.ran(n):
            self._done.set()

    async def submit(self) -> None:
        """Submit the jobs; each is durable on return."""
        for batch in self._work.batches():
            await self.submit_batch(batch)

    async def submit_batch(self, batch: range) -> None:
        """Submit the jobs with these numbers; each is durable on return."""
        work = self._work
        if len(batch) == 1:
            await self._submit_one(batch[0])
            return
        handles: list[JobHandle[None] | SchedoError] = []
        for task in range(work.tasks):
            bound = self._tasks[task].options(queue=work.queue(task))
            numbers = [n for n in batch if n % work.tasks == task]
            has_own = work.keyed or work.queues
            calls = map(self._make_job, numbers) if has_own else map(work.payload, numbers)
            handles += await bound.enqueue_many(calls)
        refused = [each for each in handles if isinstance(each, SchedoError)]
        assert not refused, f"{len(refused)} jobs were refused: {refused[0]}"

    async def _submit_one(self, number: int) -> None:
        await self._bind(number).enqueue(**self._work.payload(number))

    def _make_job(self, number: int) -> NewJob[None]:
        return self._bind(number).job(**self._work.payload(number))

    def _bind(self, number: int) -> BoundTask[..., None]:
        options = self._work.options(number) | {"queue": self._work.queue(number)}
        return self._tasks[number % self._work.tasks].options(**options)

    async def ran_all(self) -> None:
        """Return once every job has run."""
        await self._done.wait()
        self._tally.check()


async def stream(store: str | Path, work: Work) -> Result:
    """Submit the jobs to a program that runs them meanwhile."""
    program = Program(store, work, is_open=True)
    async with program.app:
        began, spent = time.perf_counter(), time.process_time()
        await program.submit()
        submit_s = time.perf_counter() - began
        await program.ran_all()
    # The application has left, so the end of each job is durable.
    return _result(submit_s, time.perf_counter() - began, spent)


async def drain(store: str | Path, work: Work) -> Result:
    """Submit the jobs to a program that runs none; then start one that runs them."""
    program = Program(store, work, is_open=False)
    async with program.app:
        began, spent = time.perf_counter(), time.process_time()
        await program.submit()
        submit_s = time.perf_counter() - began
    program = Program(store, work, is_open=True)
    began = time.perf_counter()
    async with program.app:
        await program.ran_all()
    return _result(submit_s, time.perf_counter() - began, spent)


def _result(submit_s: float, total_s: float, spent: float) -> Result:
    about = f"schedo {__version__}, embedded, async tasks, defaults"
    return Result(submit_s, total_s, about, {"program": time.process_time() - spent})


def main() -> None:
    """Do the work and print the result."""
    work = read_work()
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        store = os.environ.get("PEERS_DSN") or f"{directory}/embedded.db"
        print_result(runner.run((stream if work.mode == "stream" else drain)(store, work)))


if __name__ == "__main__":
    main()
