"""A server in virtual time whose store can fail and whose process can die."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any, cast

from schedo.core.changes import Changes
from schedo.core.leases import AttemptResult, Completed, Lease
from schedo.core.model import Job, JobSpec, LeaseKey, Options
from schedo.core.paged_index import Window
from schedo.core.requirements import Requirements
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.errors import StoreError
from schedo.store.base import Snapshot, Store
from schedo.store.sqlite.store import SqliteStore
from schedo.testing.clock import LoopClock, Wall
from schedo.testing.loop import VirtualLoop
from tests.engine.world import T0
from tests.store.steps import all_jobs


def live(test: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    """Run the test on a virtual loop, then cancel the remaining tasks."""
    loop = VirtualLoop()
    asyncio.set_event_loop(None)
    faults: list[str] = []
    loop.set_exception_handler(lambda _, context: faults.append(str(context)))

    async def run() -> None:
        try:
            await test(loop)
        finally:
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            while _open_disks:
                await _open_disks.pop().memory.close()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert faults == [], "a callback raised"


class StoreConnection:
    """One server's access to the disk: slow, failing on request, and cut when the server dies."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._turn = asyncio.Lock()
        self.is_dead = False

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._disk.memory, name)

        async def access(*args: Any) -> Any:
            async with self._turn:
                await self._pass()
                self._disk.fail(self._disk.load_fails)
                return await call(*args)

        return access

    async def open(self) -> Snapshot:
        async with self._turn:
            await self._pass()
            self._disk.fail(self._disk.load_fails)
            return await self._disk.open()

    async def close(self, *, keep_log: bool = False) -> None:
        """Leave the disk open for the next server."""

    async def recovered(self) -> None:
        """The disk stays open: no server before this one has ended."""

    async def commit(self, changes: Changes) -> None:
        frozen = replace(
            changes,
            jobs={ident: job.copy() for ident, job in changes.jobs.items()},
            attempts=list(changes.attempts),
            outputs=list(changes.outputs),
        )
        async with self._turn:
            await self._pass()
            self._disk.fail(self._disk.commit_fails)
            await self._disk.memory.commit(frozen)
            self._disk.note(frozen)
            self._disk.fail(self._disk.commit_fails)

    async def _pass(self) -> None:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        await loop.pass_time(self._disk.delay_s)
        if self.is_dead:
            await loop.create_future()


_open_disks: list[Disk] = []  # which `live` closes; the servers on them may be dead


class Disk:
    """The disk, which outlives the servers, and the commits on it."""

    def __init__(self, random: Random | None = None) -> None:
        self.memory = SqliteStore(":memory:")
        self.is_open = False
        self.random = random or Random(0)
        self.delay_s = 0.001
        self.commit_fails = 0.0
        self.load_fails = 0.0
        self.commits = 0
        self.begun: set[LeaseKey] = set()
        self.ends: list[tuple[LeaseKey, str]] = []

    async def open(self) -> Snapshot:
        """Return what the next server finds."""
        if self.is_open:
            return await self.memory.snapshot()
        self.is_open = True
        _open_disks.append(self)
        return await self.memory.open()

    async def jobs(self) -> dict[int, Job]:
        return {job.id: job for job in await all_jobs(self.memory)}

    def fail(self, probability: float) -> None:
        if probability and self.random.random() < probability:
            raise StoreError("it flickered")

    def note(self, changes: Changes) -> None:
        self.commits += 1
        self.begun.update(job.key for job in changes.jobs.values())
        self.ends += [
            (LeaseKey(each.job_id, each.attempt, each.epoch), each.outcome)
            for each in changes.attempts
        ]


class Server:
    """One life of an engine on the disk."""

    def __init__(self, loop: VirtualLoop, disk: Disk, *, window: int = 100) -> None:
        self.disk = disk
        self.connection = StoreConnection(disk)
        self.clock = LoopClock(loop, Wall(loop, T0))
        self.engine = Engine(
            cast(Store, self.connection),
            self.clock,
            draw=disk.random.random,
            window=Window(window, 2 * window),
        )

    async def start(self) -> Server:
        await self.engine.start()
        return self

    async def die(self) -> None:
        """End like a killed process: nothing reaches the disk, no call is completed."""
        self.connection.is_dead = True
        self.clock.close()
        self.engine._loop._runner.cancel()


def leftovers(engine: Engine) -> Iterator[str]:
    """Yield the traces of attempts that an idle engine still holds."""
    loop, scheduler = engine._loop, engine._loop.scheduler
    dispatcher = loop.dispatcher
    rests: dict[str, Any] = {
        "dispatched": dispatcher._leases,
        "reports": dispatcher._results,
        "waiting": dispatcher.waiting,
        "unsent": scheduler.unsent,
        "offers": scheduler._session_table.offers,
        "reservations": scheduler._placement._reservations._by_id,
        "decisions": loop.notes.decisions._futures,
        "progress": loop.notes.progress._lines,
        "waiters": loop.waiters._waiters,
        "replies": [reply for reply, _ in loop._unanswered.replies if not reply.done()],
        "commands without their records": loop._unanswered.unloaded,
    }
    yield from (f"{name}: {rest}" for name, rest in rests.items() if rest)
    for session in scheduler._session_table.by_name.values():
        if session.held:
            yield f"{session.name} holds {list(session.held)}"
    for worker in scheduler._workers:
        if worker.running or any(worker.used.values()):
            yield f"{worker.spec.id} runs {worker.running} and uses {worker.used}"
    for line in loop.scheduler._jobs.ready_queues.queue_states():
        if line.running:
            yield f"queue {line.queue.name} counts {line.running} running"


# The requests of workers, sent by tests.

CPU = Requirements(resources=(("cpu", 1_000),))


def offer(name: str = "a", *, slots: int = 1, tasks: str = "work", **fields: Any) -> WorkerSpec:
    return WorkerSpec(name, slots, frozenset(tasks.split()), resources={"cpu": 4_000}, **fields)


def make_poll(
    name: str = "a", *, slots: int = 1, tasks: str = "work", **fields: Any
) -> PollRequest:
    defaults: dict[str, Any] = {"session": "s1", "spec": offer(name, slots=slots, tasks=tasks)}
    return PollRequest(name, **(defaults | {"max_leases": 0, "supports_offers": True} | fields))


def spec(
    task: str = "work", *, once: bool = False, requirements: Requirements | None = None
) -> JobSpec:
    return JobSpec(task, b"{}", options=Options(at_most_once=once, requirements=requirements))


def done(lease: Lease) -> AttemptResult:
    return AttemptResult(lease.key, Completed(b"1"))


async def submitted(server: Server, *specs: JobSpec) -> Job:
    answers: Any = await server.engine.submit(specs or [spec()])
    assert isinstance(answers[0], Accepted)
    job: Job = answers[0].job
    return job


async def leased(server: Server, **fields: Any) -> Lease:
    """Give the worker a job."""
    poll = polling(server, **fields)
    [lease] = (await poll).leases
    await server.engine.flush()
    return lease


def polling(server: Server, name: str = "a", **fields: Any) -> asyncio.Task[PollResponse]:
    asked = make_poll(name, **{"max_leases": None, "wait_s": 30.0, **fields})
    return asyncio.get_running_loop().create_task(server.engine.sessions.work(asked))


async def disconnect(poll: asyncio.Task[PollResponse]) -> None:
    poll.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await poll


async def works_again(server: Server, loop: VirtualLoop) -> None:
    server.disk.commit_fails = 0.0
    while not server.engine.health().ready:
        await loop.pass_time(0.5)


async def offer_invocation(
    server: Server, *, names: str = "a", wait_s: float = 0.0, once: bool = True
) -> tuple[asyncio.Task[list[Job]], Lease]:
    """Let an invocation be offered to a worker."""
    polls = [polling(server, name) for name in names.split()]
    await server.engine.flush()
    placement = server.engine.invoke(spec(once=once), 1, wait_s)
    call = asyncio.ensure_future(placement)
    ended, _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    [lease] = ended.pop().result().leases
    return call, lease
