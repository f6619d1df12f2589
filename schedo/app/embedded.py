"""A complete server inside a program: a store, an engine and a worker for the application's tasks.

It runs only the application's own tasks; the built-in tasks need `schedo serve`. Other servers
could send it no requests about its jobs, so it has its store alone, also one in PostgreSQL.

A handler can crash this whole process, and then every attempt that ran is a poison suspect. If only
one ran, the loss is counted on its job. If several ran, it is counted on none, and each job runs
again on a worker with a single slot. So that the next process knows the running attempts, the start
of a suspect is on disk before it runs; after a crash, so is the start of every attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from schedo.clock import Clock
from schedo.core.model import LeaseKey
from schedo.core.shards import SHARDS
from schedo.core.worker_status import EMBEDDED, EMBEDDED_ALONE
from schedo.engine.clocks import make_clock
from schedo.engine.engine import Engine
from schedo.errors import StoreLocked
from schedo.garbage import collect_seldom
from schedo.loops import finish
from schedo.store import open_store
from schedo.store.inbox import find_inbox
from schedo.tasks.backend import Backend
from schedo.tasks.declarations import declare_schedules
from schedo.tasks.hooks import running_lifespan
from schedo.tasks.python import TaskRunner, Watcher
from schedo.tasks.registry import Registry
from schedo.tasks.threads import HandlerThreads
from schedo.worker.engine_backend import EngineBackend
from schedo.worker.in_process import LocalWorker

if TYPE_CHECKING:
    from schedo.core.model import JobSpec
    from schedo.store.cluster import Member, ShardOwner
    from schedo.store.inbox import SqlInbox

_ONLY_ONE = (
    "only one process can have a store open: for several, run `schedo serve` and give their"
    " applications its url instead of a store"
)
ALONE_S = 2.0  # in which the other servers of its store should be gone
OWNER = "code:embedded"  # of the schedules that the application declares


class _StartsOfOwnJobs(Watcher):
    """In a cluster: no handler starts while another server may have its job."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def may_start(self, key: LeaseKey) -> bool:
        """Return whether this server is sure to own the job; it may have been stopped."""
        return self._engine.sessions.may_start()


class EmbeddedServer:
    """A server in the running event loop, from start() to stop()."""

    def __init__(
        self,
        store: str,
        registry: Registry,
        concurrency: int,
        clock: Clock | None = None,
        *,
        is_pruning: bool = False,
    ) -> None:
        self._registry = registry
        self._is_pruning = is_pruning
        self._threads = HandlerThreads(concurrency + 1)
        opened = open_store(store)
        self.engine = Engine(opened, clock or make_clock(opened))
        self._use_inbox(find_inbox(opened))
        watcher = None if self.engine.cluster is None else _StartsOfOwnJobs(self.engine)
        runners = {
            n: TaskRunner(task, self._threads, watcher=watcher, hooks=registry.hooks)
            for n, task in registry.tasks.items()
        }
        self._lifespan = contextlib.AsyncExitStack()
        defaults = registry.task_defaults()
        self._worker = LocalWorker(
            self.engine, EMBEDDED, concurrency, runners, task_defaults=defaults
        )
        self._suspects = LocalWorker(
            self.engine, EMBEDDED_ALONE, 1, runners, task_defaults=defaults, isolated=True
        )
        self.backend: Backend = EngineBackend(self.engine)

    def _use_inbox(self, inbox: SqlInbox | None) -> None:
        if inbox is not None:
            from schedo.protocol.enqueued import read_rows

            self.engine.inbox.use(inbox, partial(read_rows, check=_accept_all))

    async def start(self, use: Callable[[], None], leave: Callable[[], None]) -> None:
        """Open the store, start to run jobs, and store the schedules.

        use: lets the application submit to `backend`, which it does from its first job on. leave:
        ends that if the start fails. Raise StoreLocked if another server holds the store.
        """
        collect_seldom()
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(self._threads.shutdown, wait=False)
            await self._open_store()
            undo.push_async_callback(self.engine.stop)
            if self.engine.cluster is not None:
                await self._take_all(self.engine.cluster)
            await self._lifespan.enter_async_context(running_lifespan(self._registry.hooks))
            undo.push_async_callback(self._lifespan.aclose)
            undo.callback(leave)
            use()
            undo.push_async_callback(self._end_attempts, 0.0)  # they begin before the start ends
            self._worker.attach(durable_starts=self.engine.was_killed)
            self._suspects.attach(durable_starts=True)
            schedules = [*self._registry.schedules.values()]
            await declare_schedules(
                self.engine,
                OWNER,
                schedules,
                is_pruning=self._is_pruning,
                prune_hint="Schedo(store, prune_schedules=True)",
            )
            undo.pop_all()

    def hold(self) -> None:
        """Start no more jobs until release(); running ones continue."""
        self._worker.hold()

    def release(self) -> None:
        """Start jobs again."""
        self._worker.attach(durable_starts=self.engine.was_killed)

    async def _open_store(self) -> None:
        cluster = self.engine.cluster
        if cluster is not None:
            cluster.keeps_all = True
            cluster.join()
        try:
            await self.engine.start()
        except StoreLocked as error:
            raise StoreLocked(f"{error}; {_ONLY_ONE}") from error

    async def _take_all(self, cluster: ShardOwner) -> None:
        """Return when this server owns all shards; raise StoreLocked if another one has some.

        Until then the others do not know this server. It takes over what dead ones have left.
        """
        changed = asyncio.Event()
        cluster.on_change.append(changed.set)
        try:
            async with asyncio.timeout(ALONE_S):
                while _find_other(cluster) is not None:
                    await _take(changed)
                await cluster.announce("")
                while not all(map(cluster.is_mine, range(SHARDS))):
                    await _take(changed)
        except TimeoutError:
            other = _find_other(cluster)
            who = "another server" if other is None else f"the server {other.name}"
            raise StoreLocked(f"{who} has jobs of this store; {_ONLY_ONE}") from None
        finally:
            cluster.on_change.remove(changed.set)

    async def stop(self, grace_s: float) -> None:
        """Let running attempts finish within the grace time; release the rest."""
        self.engine.note_leaving()
        try:
            await self._end_attempts(grace_s)
        finally:
            try:
                await self._lifespan.aclose()
            finally:
                await finish(self.engine.stop())  # a part of a stop would leave the store locked
                self._threads.shutdown(wait=False, cancel_futures=True)

    async def _end_attempts(self, grace_s: float) -> None:
        """Start no more attempts, and end those that run; at once if it is cancelled."""
        try:
            await asyncio.gather(self._worker.drain(grace_s), self._suspects.drain(grace_s))
        except asyncio.CancelledError:
            await asyncio.gather(self._worker.close(), self._suspects.close())
            raise


async def _take(changed: asyncio.Event) -> None:
    """Wait for the next change of the servers or of their shards."""
    await changed.wait()
    changed.clear()


def _find_other(cluster: ShardOwner) -> Member | None:
    """Return another server that lives and owns a shard."""
    owners = map(cluster.owner, range(SHARDS))
    return next((each for each in owners if each is not None and each != cluster.me), None)


def _accept_all(spec: JobSpec) -> None:
    """Accept a job of any task, as a submit to this server does; it waits until one runs it."""
