"""One simulated machine room: a disk, servers that follow one another, their workers and the time.

Only one server works at a time. When it dies, its tasks end where they are, its workers are gone
and only the disk stays. Everything random comes from one Random, everything waits on one virtual
loop, and whatever can be seen from outside goes into the trace.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any, cast

from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.store.base import Store
from schedo.testing.clock import LoopClock, Wall
from schedo.testing.loop import VirtualLoop
from tests.sim.crew import MOODS, Bench, Line, make_benches
from tests.sim.disk import NO_FAULTS, Disk, ServerStore
from tests.sim.files import Files, FileStore
from tests.sim.plan import Plan
from tests.sim.trace import (
    Answered,
    Broke,
    Called,
    Calmed,
    Died,
    Ended,
    Opened,
    Probed,
    Seen,
    Stepped,
    Trace,
)

_server: ContextVar[Server | None] = ContextVar("server", default=None)
LOOKED_UP_MAX = 20  # records that a command has fetched, until the next commit
ENGINE_LOG = logging.getLogger("schedo.engine")


class Server:
    """One life of schedo, until it dies or stops."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.is_dead = False
        self.is_open = False
        self.epoch = 0
        self.lines: dict[str, Line] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.died: list[Callable[[], None]] = []
        self.clock = LoopClock(world.loop, world.wall, world.lateness)
        self.store = world.make_store(self.die_soon)
        self.engine = Engine(
            cast(Store, self.store),
            self.clock,
            retention=world.plan.retention,
            draw=world.random.random,
            window=world.plan.window,
            ready_limit=2 * world.plan.window,
            on_fatal=lambda error: self.die_soon(),
        )
        self.context = Context()
        self.context.run(_server.set, self)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run it as a part of this server: it dies with it."""
        return self.world.loop.create_task(coroutine, context=self.context)

    def tell(self, call: Callable[..., None], *what: Any) -> None:
        """Call the engine so that whatever it starts is a part of this server."""
        self.context.copy().run(call, self.engine, *what)

    async def open(self) -> None:
        """Start the engine and let the workers connect."""
        try:
            await self.engine.start()
        except SchedoError:
            self.die_soon()
            return
        self.is_open = True
        self.epoch = self.engine.health().epoch
        self.world.see(Opened, self.number, self.epoch)
        for bench in self.world.benches:
            self.connect(bench)

    def connect(self, bench: Bench) -> None:
        """Let a worker connect, unless it has."""
        known = self.lines.get(bench.name)
        if known is None or not known.is_open:
            self.world.lines += 1
            line = self.lines[bench.name] = Line(self.world, self, bench, self.world.lines)
            line.attach()

    def die_soon(self) -> None:
        """Be dead at once; what is left of it is cleared away when the present callback is done."""
        if not self.is_dead:
            self.is_dead = True
            self.store.die()
            self.is_open = False
            self.clock.close()
            self.world.see(Died, self.number)
            self.world.loop.call_soon(self._clear_away)

    def _clear_away(self) -> None:
        for task in self.tasks:
            task.cancel()
        for line in self.lines.values():
            line.orphan()
        for tell in self.died:
            tell()
        self.store.abandon()
        self.world.server_is_gone(self)

    def probe(self) -> None:
        """Look whether memory is bounded, and agrees with the disk about all it does not change."""
        memory = self.engine._loop.scheduler.jobs
        changed = {*memory.changes.jobs, *memory._committing}
        running = sum(len(line.holds) for line in self.lines.values())
        lanes = sum(1 for _ in memory.ready_queues.ready_indexes())
        bound = 2 * self.world.plan.window * (1 + lanes) + running + len(changed) + LOOKED_UP_MAX
        wrong = []
        is_following = self.world.disk.memory._clock.offset_us != memory.offset_us
        for ident, job in memory._jobs.items():
            stored = self.world.disk.memory._jobs.get(ident)
            if ident in changed or is_following:
                continue
            if stored is None:
                wrong.append(f"job {ident} is not on disk")
            elif (stored.state, stored.due_at, stored.attempt, stored.rank) != (
                job.state,
                job.due_at,
                job.attempt,
                job.rank,
            ):
                wrong.append(f"job {ident} is {stored.state} on disk and {job.state} in memory")
        self.world.see(Probed, len(memory), bound, tuple(wrong))


class World:
    """Everything there is in one simulation."""

    def __init__(self, seed: int, plan: Plan | None = None, store: str | None = None) -> None:
        self.random = Random(seed)
        self.plan = plan or Plan.draw(self.random, store)
        self.loop = VirtualLoop()
        self.loop.set_task_factory(_make_task)
        self.loop.set_exception_handler(self._task_failed)
        self.wall = Wall(self.loop, self.plan.start)
        self.trace: Trace = []
        self.disk = Disk(self.loop, self.random, self.see)
        self.files = Files() if self.plan.store == "sqlite" else None
        self.benches = make_benches(self.random)
        self.moods = list(MOODS)
        self.mood_weights = [weight * self.random.choice((0, 1, 1, 3)) for weight in MOODS.values()]
        self.mood_weights[0] += 10
        self.is_calm = False
        self.is_over = False
        self.server: Server | None = None
        self.servers = 0
        self.lines = 0
        self.calls = 0
        self.highest_wall = self.plan.start

    # Seeing.

    def see(self, kind: type[Seen], *what: Any) -> None:
        """Add to the trace."""
        if self.trace and type(self.trace[-1]) is Ended:
            return
        now = self.wall.now()
        self.highest_wall = max(self.highest_wall, now)
        self.trace.append(kind(round(self.loop.time() * 1_000_000), now, *what))

    def _task_failed(self, loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, SchedoError | asyncio.CancelledError):
            self.see(Broke, f"{context.get('message')}: {error!r}")

    def lateness(self) -> int:
        """Return how much too late an alarm rings; now and then too early."""
        return 0 if self.is_calm else self.random.choice((0, 20, 60, 1_000, 5_000, -400))

    # Servers.

    def make_store(self, die: Callable[[], None]) -> ServerStore:
        """Return a new server's way to the disk."""
        if self.files is not None:
            return FileStore(self.disk, self.files, die)
        return ServerStore(self.disk, die)

    def close(self) -> None:
        """Delete what the world has on a real disk."""
        self.loop.close()
        if self.files is not None:
            self.files.remove()

    def boot(self) -> None:
        """Start a server unless one is there."""
        if self.server is None and not self.is_over:
            self.servers += 1
            server = self.server = Server(self, self.servers)
            server.run(server.open())

    def server_is_gone(self, server: Server) -> None:
        """Start the next one after a while."""
        self.server = None
        self.loop.create_task(self._boot_later(), context=Context())  # not a part of the dead one

    async def _boot_later(self) -> None:
        await self.disk.memory.close()
        if not self.is_calm:
            down = self.random.choice((0.0, 0.1, 1.0, 10.0, 200.0))
            await self.loop.pass_time(self.random.uniform(0, down))
        self.boot()

    async def stop_server(self) -> None:
        """Stop the server in order, as SIGTERM does."""
        server = self.server
        if server is None or not server.is_open:
            return
        server.is_open = False
        for line in server.lines.values():
            server.tell(Engine.close_worker, line.bench.name)
        server.is_open = True  # the workers may still report
        await self.loop.pass_time(self.random.uniform(0, 5))
        for line in server.lines.values():
            if line.is_live:
                line.hand_back_all()
        task = server.run(server.engine.stop())
        for _ in range(60):
            await self.loop.pass_time(1.0)
            if task.done():
                break
        server.die_soon()

    # Calls.

    def call(
        self, name: str, subject: Any, ask: Callable[[Engine], Awaitable[Any]]
    ) -> asyncio.Task[bool] | None:
        """Ask the server that works for something; its answer goes into the trace."""
        server = self.server
        if server is None or not server.is_open:
            return None
        self.calls += 1
        number = self.calls
        self.see(Called, number, name, subject)
        is_answered = False

        def answer(*what: Any) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                self.see(Answered, number, *what)

        async def run() -> bool:
            """Return whether the server knows what it did."""
            try:
                value = await ask(server.engine)
            except SchedoError as error:
                if not server.is_dead:
                    answer(None, error.code, error.status)
                return error.status < 500
            if not server.is_dead:
                answer(value)
            return not server.is_dead

        server.died.append(lambda: answer(None, "died", 503))
        return server.run(run())

    # The time.

    def set_clock(self, delta_us: int, *, notices: bool) -> None:
        """Set the wall clock; a server notices at once, or when its alarm rings next."""
        if self.wall.now() + delta_us < self.plan.start - 20 * 3_600_000_000:
            return
        self.wall.offset_us += delta_us
        self.see(Stepped, delta_us)
        if notices and self.server is not None:
            self.loop.call_soon(self.server.clock.fire, context=self.server.context)

    def calm(self) -> None:
        """From now on nothing fails and every worker does its work; the clock is put right."""
        self.disk.faults = NO_FAULTS
        self.is_calm = True
        behind = self.highest_wall - self.wall.now()
        if behind > 0:
            seconds = -(-behind // 1_000_000)
            self.set_clock(seconds * 1_000_000, notices=True)
        self.see(Calmed)
        for line in list(self.server.lines.values()) if self.server is not None else ():
            if line.is_live:
                line.finish_all()
        if self.server is not None and self.server.is_open:
            for bench in self.benches:
                self.server.connect(bench)


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
    server = context.get(_server) if context is not None else _server.get()
    if server is not None:
        server.tasks.append(task)
        if server.is_dead:
            task.cancel()
    return task


class BugLog(logging.Handler):
    """Puts what the engine logs as an internal error into the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            error = record.exc_info[1]
            self._world.see(Broke, f"{record.getMessage()}: {error!r}")
