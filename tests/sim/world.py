"""One simulated world: a disk, servers that follow one another, their workers, and the clocks.

Only one server runs at a time. When it dies, its tasks are cancelled and its worker connections
end; only the disk stays. All random numbers come from one Random, all waits are in one virtual
loop, and the trace records all events that are observable from outside.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any, cast

from schedo.core.paged_index import Window
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.store.base import Store
from schedo.testing.clock import LoopClock, Wall
from schedo.testing.loop import VirtualLoop
from tests.sim.directories import Files
from tests.sim.disk import NO_FAULTS, Disk, ServerStore
from tests.sim.files import FileStore
from tests.sim.plan import Plan
from tests.sim.remote import Drain, RemoteWorker
from tests.sim.trace import (
    Answered,
    Broke,
    Called,
    Calmed,
    Died,
    Ended,
    Event,
    Freezes,
    Froze,
    Opened,
    Probed,
    Reopened,
    Stepped,
    Trace,
)
from tests.sim.workers import BEHAVIOURS, Connection, WorkerProfile, make_profiles

_server: ContextVar[Server | None] = ContextVar("server", default=None)
TASKS = frozenset({"a", "b", "c"})
LOOKED_UP_MAX = 20  # records that commands have loaded, until the next commit


class Server:
    """One run of the server, until it dies or stops."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.is_dead = False
        self.is_open = False
        self.epoch = 0
        self.connections: dict[str, Connection] = {}
        self.drain: Drain | None = None  # another server has the store now
        self.tasks: list[asyncio.Task[Any]] = []
        self.died: list[Callable[[], None]] = []
        self.clock = LoopClock(world.loop, world.wall, world.lateness)
        self.store = world.make_store(self.die_soon)
        self.engine = Engine(
            cast(Store, self.store),
            self.clock,
            retention=world.plan.retention,
            draw=world.random.random,
            window=Window(world.plan.window, 2 * world.plan.window),
            on_fatal=lambda error: self.die_soon(),
        )
        self.context = Context()
        self.context.run(_server.set, self)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a task of this server; it ends when the server dies."""
        return self.world.loop.create_task(coroutine, context=self.context)

    def call_engine(self, call: Callable[..., None], *what: Any) -> None:
        """Call the engine in this server's context, so that its new tasks end with the server."""
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
        self.world.record(Opened, self.number, self.epoch)
        for profile in self.world.profiles:
            self.connect(profile)

    def connect(self, profile: WorkerProfile) -> None:
        """Connect a worker, unless it is connected."""
        known = self.connections.get(profile.name)
        if known is None or not known.is_open:
            self.world.connections += 1
            connection = self.connections[profile.name] = Connection(
                self.world, self, profile, self.world.connections
            )
            connection.attach()

    def die_soon(self) -> None:
        """Die at once; the remaining tasks are cancelled after the current callback."""
        if not self.is_dead:
            self.is_dead = True
            self.store.die()
            self.is_open = False
            self.clock.close()
            self.world.record(Died, self.number)
            for worker in self.world.remote:
                worker.note_death()
            self.world.loop.call_soon(self._clear_away)

    def _clear_away(self) -> None:
        for task in self.tasks:
            task.cancel()
        for connection in self.connections.values():
            connection.orphan()
        for tell in self.died:
            tell()
        self.store.abandon()
        self.world.server_is_gone(self)

    def probe(self) -> None:
        """Record whether memory is bounded, and agrees with the disk in all unchanged records."""
        memory = self.engine._loop.scheduler._jobs
        changed = {*memory.changes.jobs, *memory._committing}
        running = sum(len(connection.held) for connection in self.connections.values())
        sessions = self.engine._loop.scheduler._session_table.by_name.values()
        running += sum(len(session.held) for session in sessions)
        indexes = sum(1 for _ in memory.ready_queues.ready_indexes())
        bound = 2 * self.world.plan.window * (1 + indexes) + running + len(changed) + LOOKED_UP_MAX
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
        self.world.record(Probed, len(memory), bound, tuple(wrong))


class World:
    """All parts of one simulation."""

    def __init__(self, seed: int, plan: Plan | None = None, store: str | None = None) -> None:
        self.random = Random(seed)
        drawn = Plan.draw(self.random, store).with_operations(seed % 2 == 0)
        self.plan = plan or drawn.with_succession(seed)
        self.loop = VirtualLoop()
        self.loop.set_task_factory(_make_task)
        self.loop.set_exception_handler(self._task_failed)
        self.wall = Wall(self.loop, self.plan.start)
        self.trace: Trace = []
        self.disk = Disk(self.loop, self.random, self.record)
        self.files = Files() if self.plan.store == "sqlite" else None
        self.profiles = make_profiles(self.random)
        if self.plan.remote_workers:  # only they run task c
            self.profiles = [
                dataclasses.replace(each, tasks=(each.tasks or TASKS) - {"c"})
                for each in self.profiles
            ]
        self.moods = list(BEHAVIOURS)
        self.mood_weights = [
            weight * self.random.choice((0, 1, 1, 3)) for weight in BEHAVIOURS.values()
        ]
        self.mood_weights[0] += 10
        self.is_calm = False
        self.is_over = False
        self.server: Server | None = None
        self.draining: list[Server] = []
        self.servers = 0
        self.connections = 0
        self.calls = 0
        self.highest_wall = self.plan.start
        self.remote = [RemoteWorker(self, number) for number in range(self.plan.remote_workers)]

    # The trace.

    def record(self, kind: type[Event], *what: Any) -> None:
        """Add an event to the trace."""
        if self.trace and type(self.trace[-1]) is Ended:
            return
        now = self.wall.now()
        self.highest_wall = max(self.highest_wall, now)
        self.trace.append(kind(round(self.loop.time() * 1_000_000), now, *what))

    def _task_failed(self, loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, SchedoError | asyncio.CancelledError):
            self.record(Broke, f"{context.get('message')}: {error!r}")

    def lateness(self) -> int:
        """Return the lateness of an alarm in microseconds; sometimes it is negative."""
        return 0 if self.is_calm else self.random.choice((0, 20, 60, 1_000, 5_000, -400))

    # Servers.

    def make_store(self, die: Callable[[], None]) -> ServerStore:
        """Return the store of a new server."""
        if self.files is not None:
            return FileStore(self.disk, self.files, die)
        return ServerStore(self.disk, die)

    def close(self) -> None:
        """Delete the world's files."""
        self.loop.close()
        if self.files is not None:
            self.files.remove()

    def boot(self) -> None:
        """Start a server, unless one is running."""
        if self.server is None and not self.is_over:
            self.servers += 1
            server = self.server = Server(self, self.servers)
            server.run(server.open())

    def server_is_gone(self, server: Server) -> None:
        """Start the next server after a random time."""
        if server is not self.server:
            self.draining.remove(server)
            return
        self.server = None
        # It does not run in the context of the dead one.
        self.loop.create_task(self._boot_later(), context=Context())

    async def _boot_later(self) -> None:
        await self.disk.memory.close()
        if not self.is_calm:
            down = 0.02
            if not self.plan.has_standby:
                down = self.random.choice((0.0, 0.1, 1.0, 10.0, 200.0))
            await self.loop.pass_time(self.random.uniform(0, down))
        self.boot()

    async def hand_over(self, grace_s: float | None = None) -> None:
        """Freeze the server, and let another one have its store; the old one drains.

        Or the new one dies before it serves, and the old one goes on; or the old one dies.
        grace_s: how long the attempts of the old one may run; None: as long as they take.
        """
        old = self.server
        if old is None or not old.is_open:
            return
        old.is_open = False
        old.drain = drain = Drain(self, old, f"handover-{old.number}")
        self.record(Freezes, old.number)
        freezing = old.run(old.engine.freezing.freeze(drain.spec.id))
        await asyncio.wait([freezing])
        if freezing.cancelled() or freezing.exception() is not None:
            drain.serve_on()
            return
        self.record(Froze, old.number)
        await self.loop.pass_time(self.random.uniform(0, 1))
        fate = self.random.choice(("drains", "drains", "drains", "goes on", "dies"))
        if fate == "dies" or old.is_dead:
            old.die_soon()
        elif fate == "goes on":
            await self._go_on(old, drain)
        else:
            old.store.pass_on()
            self.draining.append(old)
            self.loop.create_task(drain.run(grace_s), context=Context())
            self.server = None
            self.boot()

    async def _go_on(self, old: Server, drain: Drain) -> None:
        if self.files is None and self.random.random() < 0.5:
            # The new server has opened the store before it died.
            await self.disk.memory.open()
            await self.disk.memory.close()
        reopening = old.run(old.engine.freezing.reopen())
        await asyncio.wait([reopening])
        if reopening.cancelled() or reopening.exception() is not None:
            old.die_soon()
        elif not old.is_dead:
            old.epoch = old.engine.health().epoch
            self.record(Reopened, old.number)
            drain.serve_on()

    async def stop_server(self) -> None:
        """Shut the server down, as SIGTERM does: a standby gets the store before it drains."""
        server = self.server
        if self.plan.has_standby:
            await self.hand_over(grace_s=self.random.uniform(0, 5))
        if server is None or not server.is_open or server is not self.server:
            return
        server.is_open = False
        for connection in server.connections.values():
            server.call_engine(Engine.close_worker, connection.profile.name)
        server.is_open = True  # the workers may still report
        await self.loop.pass_time(self.random.uniform(0, 5))
        for connection in server.connections.values():
            if connection.is_live:
                connection.release_all()
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
        """Send a request to the running server, and record its reply in the trace."""
        server = self.server
        if server is None or not server.is_open:
            return None
        self.calls += 1
        number = self.calls
        self.record(Called, number, name, subject)
        is_answered = False

        def answer(*what: Any) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                self.record(Answered, number, *what)

        async def run() -> bool:
            """Return whether the outcome of the request is known."""
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
        """Set the wall clock; a server notices it at once, or at its next alarm."""
        if self.wall.now() + delta_us < self.plan.start - 20 * 3_600_000_000:
            return
        self.wall.offset_us += delta_us
        self.record(Stepped, delta_us)
        if notices and self.server is not None:
            self.loop.call_soon(self.server.clock.fire, context=self.server.context)

    def calm(self) -> None:
        """End all faults, correct the clock, and let every worker complete its attempts."""
        self.disk.faults = NO_FAULTS
        self.is_calm = True
        behind = self.highest_wall - self.wall.now()
        if behind > 0:
            seconds = -(-behind // 1_000_000)
            self.set_clock(seconds * 1_000_000, notices=True)
        self.record(Calmed)
        for connection in list(self.server.connections.values()) if self.server is not None else ():
            if connection.is_live:
                connection.finish_all()
        if self.server is not None and self.server.is_open:
            for profile in self.profiles:
                self.server.connect(profile)


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
