"""An engine on a real SQLite file in virtual time, with a worker that the test moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from schedo.core.leases import AttemptResult, Completed, Lease, Outcome, StopRequest
from schedo.core.limits import MINUTE
from schedo.core.model import Job, JobSpec, Options, Retry
from schedo.core.paged_index import Window
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.store.base import Store
from schedo.testing.clock import VirtualClock
from schedo.testing.faults import FaultyStore
from tests.stores import make_store

Answers = list[Accepted[Job] | SchedoError]

T0 = 1_800_000_000_000_000  # 2027-01-15T08:00:00Z


class HandWorker:
    """A transport that only records its leases and stops; the test ends each attempt."""

    def __init__(self, engine: Engine, worker_id: str = "process-1", slots: int = 10) -> None:
        self.engine = engine
        self.spec = WorkerSpec(worker_id, slots, frozenset({"work"}))
        self.leases: list[Lease] = []
        self.stops: list[StopRequest] = []

    def attach(self) -> None:
        self.engine.attach(self.spec, self)

    def start(self, lease: Lease) -> None:
        self.leases.append(lease)

    def stop(self, stop: StopRequest) -> None:
        self.stops.append(stop)

    def end(self, outcome: Outcome | None = None, ran_us: int | None = None) -> Lease:
        """End the oldest attempt it holds."""
        lease = self.leases.pop(0)
        self.engine.report(AttemptResult(lease.key, outcome or Completed(b'"done"'), (), ran_us))
        return lease


class World:
    """An engine with its store, clock and worker, for tests."""

    def __init__(
        self, path: Path, *, window: int = 100, now: int = T0, worker: str = "process-1"
    ) -> None:
        self.path = path
        self.clock = VirtualClock(now)
        self.store = FaultyStore(make_store(path))
        self.fatal: list[BaseException] = []  # errors after which the process should end
        self.engine = Engine(
            cast(Store, self.store),
            self.clock,
            draw=lambda: 0.5,
            window=Window(window, 2 * window),
            on_fatal=self.fatal.append,
        )
        self.worker = HandWorker(self.engine, worker)

    async def submit(self, **fields: object) -> Job:
        """Submit one job of the task `work` and return it; if it is due, it has started."""
        answers: Answers = await self.engine.submit([spec(**fields)])
        answer = answers[0]
        await self.engine.flush()
        assert isinstance(answer, Accepted), answer
        job: Job = answer.job
        return job

    async def run_until(self, at: int) -> None:
        await self.clock.run_until(self.engine, at)


@asynccontextmanager
async def running(
    path: Path, *, window: int = 100, now: int = T0, worker: str = "process-1"
) -> AsyncIterator[World]:
    """A started world; stopped in order at the end, unless the test has killed it."""
    world = World(path, window=window, now=now, worker=worker)
    await world.engine.start()
    world.worker.attach()
    await world.engine.flush()
    try:
        yield world
    finally:
        world.store.release()
        await world.engine.stop()


def spec(**fields: object) -> JobSpec:
    """Return a spec of the task `work`; `options` fields may be given directly."""
    options = {name: fields.pop(name) for name in list(fields) if name in Options.__struct_fields__}
    fields.setdefault("task", "work")
    if options:
        fields["options"] = Options(**options)  # type: ignore[arg-type]
    return JobSpec(**fields)  # type: ignore[arg-type]


THRICE = Retry(max_attempts=3, backoff="fixed", initial_us=MINUTE, jitter=0.0)


async def leased(world: World) -> None:
    """Return once the worker has a lease."""
    while not world.worker.leases:
        await _pass_time(0.001)


async def recovered(world: World, failures: int = 1) -> None:
    """Return once the store has failed this often and the engine has recovered."""
    while not (world.store.failures >= failures and world.engine.health().ready):
        await _pass_time(0.01)


async def _pass_time(seconds: float) -> None:
    """Let the loop run; the store's thread works meanwhile."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)
