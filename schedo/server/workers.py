"""The server's own workers: one in its event loop for shell and http, and child processes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import schedo
from schedo.config import Config
from schedo.core.built_in import BUILT_IN, find_permissions, may_run
from schedo.engine.engine import Engine
from schedo.server.settings import read_webhook_secrets
from schedo.server.start import Start
from schedo.tasks.built_in import RunnerSettings, make_runners
from schedo.tasks.shell.orphans import Orphans
from schedo.tasks.threads import call_in_some_thread
from schedo.worker.in_process import LocalWorker

if TYPE_CHECKING:
    from schedo.worker.process.pool import PoolSettings, ProcessPool
    from schedo.worker.successor_backend import SuccessorBackend

log = logging.getLogger("schedo")

WATCH_S = 1.0


class ServerWorkers:
    """The workers of one server; they take no work before they are attached."""

    def __init__(self, config: Config, engine: Engine, start: Start) -> None:
        self._orphans: Orphans | None = None
        self._reaping: asyncio.Future[int] | None = None
        if config.allow_shell and engine.store.path is not None:
            self._orphans = Orphans(Path(engine.store.path + ".children"))
        permissions = find_permissions(config)
        self._runners = make_runners(
            (name for name in BUILT_IN if may_run(name, permissions)),
            RunnerSettings(
                user_agent=f"schedo/{schedo.__version__}",
                webhook_allow=config.webhook_allow,
                webhook_secrets=read_webhook_secrets(config.webhook_secrets_file),
                output_dir=Path(config.output_dir) if config.output_dir else None,
                orphans=self._orphans,
            ),
        )
        for runner in self._runners.values():
            engine.add_reasons(runner.not_ready_reasons)
        self._local = LocalWorker(engine, "local", config.concurrency, self._runners)
        self._children = _make_children(config, engine, start)

    async def prepare(self) -> None:
        """Start the child processes, which take work only once the engine has started."""
        for runner in self._runners.values():
            runner.prepare()
        if self._children is not None:
            await self._children.prepare()

    async def attach(self) -> None:
        """Run the built-in tasks from now on; the engine has started.

        No command starts beside one that an earlier server left. This server holds the store, so
        another server that wrote the list of commands is dead, and what it left running has no
        owner. A thread kills it, if there is one for it, because that reads all of /proc.
        """
        if self._orphans is not None:
            self._reaping = call_in_some_thread(self._orphans.reap)
            _log_killed(await asyncio.shield(self._reaping))
        self._local.attach()

    async def start_children(self) -> None:
        """Run the application's tasks; raise CannotServe if it cannot be imported."""
        if self._children is not None:
            await self._children.start()

    async def drain(self, grace_s: float | None) -> None:
        """Take no new work, give running attempts the grace time to finish, release the rest.

        grace_s: None: as long as they take.
        """
        stops = [self._local.drain(grace_s)]
        if self._children is not None:
            stops.append(self._children.stop(grace_s))
        await asyncio.gather(*stops)
        if self._reaping is not None:
            await asyncio.wait([self._reaping])  # it may use the list of commands until then
        for runner in self._runners.values():
            runner.close()
        if self._orphans is not None:
            self._orphans.close()

    def leave(self) -> None:
        """Let the next server have a list of commands of its own: these run on in this process."""
        if self._orphans is not None:
            self._orphans.leave()

    def follow(self, successor: SuccessorBackend) -> None:
        """Send what the tasks that still run request to the server that follows this one."""
        if self._children is not None:
            self._children.follow(successor)

    def come_back(self) -> None:
        """End what a server that was to follow has started, and died."""
        if self._orphans is not None:
            self._orphans.come_back()

    async def watch_left(self) -> None:
        """Kill the commands of an old process if it dies before they end; return when it is gone.

        Only those of a process that has passed its store to this one: they run on in it.
        """
        while self._orphans is not None and self._orphans.has_left():
            await asyncio.sleep(WATCH_S)
            self.reap_left()

    def reap_left(self) -> None:
        """Kill the commands of old processes that have died before these ended."""
        if self._orphans is not None:
            _log_killed(self._orphans.reap_left())

    def stop_now(self) -> None:
        """End the grace time of a drain now."""
        self._local.stop_now()
        if self._children is not None:
            self._children.stop_now()


def _log_killed(count: int) -> None:
    if count:
        log.warning("killed %d commands that an earlier server left running", count)


def _make_children(config: Config, engine: Engine, start: Start) -> ProcessPool | None:
    if config.app is None:
        return None
    from schedo.worker.process.pool import ProcessPool

    return ProcessPool(engine, config.app, make_pool_settings(config, start))


def make_pool_settings(config: Config, start: Start) -> PoolSettings:
    """Return the settings of the child processes, whose slots add up to those of the config.

    There are no more processes than slots for all tasks. Where async tasks have slots of their own,
    each process has at least one of each kind.
    """
    from schedo.worker.process.pool import PoolSettings

    processes, async_slots, more_async_slots = config.processes, 0, 0
    if config.async_concurrency:
        async_slots, more_async_slots = _share(config.async_concurrency, processes)
    else:
        processes = min(processes, config.concurrency)
    slots, more_slots = _share(config.concurrency, processes)
    return PoolSettings(
        processes=processes,
        slots=slots,
        async_slots=async_slots,
        more_slots=more_slots,
        more_async_slots=more_async_slots,
        log_format=config.log_format,
        log_level=config.log_level,
        is_pruning=start.is_pruning,
        is_reloading=start.is_reloading,
    )


def _share(count: int, processes: int) -> tuple[int, int]:
    """Return the slots of each process, at least one, and how many processes have one more."""
    return divmod(max(count, processes), processes)
