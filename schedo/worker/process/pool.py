"""The pool of child processes that run an application's tasks.

The pool replaces a child that dies, after a delay that grows when children die young. It replaces a
retired child at once, while that child still finishes its attempts. At most as many retired
children as places exist at a time, so that handlers that block forever cannot fill the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import marshal
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from schedo.child_process import ChildHandle, write_unnamed_file
from schedo.core.worker_pool import PLACE_LABEL, WorkerSpec
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.hardening import is_undumpable
from schedo.log_format import LogFormat
from schedo.program import module_command
from schedo.protocol.frames import Attach
from schedo.tasks.declarations import declare_schedules
from schedo.worker.process.child_memory import ChildMemory, make_memory
from schedo.worker.process.child_slots import ChildSlots
from schedo.worker.process.supervisor import CannotServe, ChildSupervisor
from schedo.worker.process.timeouts import ChildTimeouts
from schedo.worker.shutdown import Grace

# The variables that the system's loader, the C library and the interpreter read at their start.
_FOR_THE_START = re.compile(
    rb"(PATH|HOME|LANG|LC_.*|TZ|LD_.*|DYLD_.*|MALLOC_.*|GLIBC_.*|PYTHON.*)\Z"
)
RESPAWN_AFTER_S = 0.1
RESPAWN_AFTER_S_MAX = 5.0
SUSPECTS_CHECKED_S = 0.5  # how often the pool checks whether poison suspects wait

if TYPE_CHECKING:
    from schedo.worker.successor_backend import SuccessorBackend

log = logging.getLogger("schedo.worker")


class PoolSettings(NamedTuple):
    """How many child processes run, and how each of them runs."""

    processes: int
    slots: int  # attempts that a process runs at a time; without those in async_slots
    async_slots: int = 0  # slots for async tasks only; 0: these use the others
    timeouts: ChildTimeouts = ChildTimeouts()
    log_format: LogFormat = "text"
    log_level: str = "info"
    is_pruning: bool = False  # delete the schedules that the application no longer declares
    is_reloading: bool = False  # replace the children when a source file changes
    more_slots: int = 0  # the number of processes that have one slot more
    more_async_slots: int = 0

    def slots_of(self, place: int) -> tuple[int, int]:
        """Return the slots of the process in a place, counted from 1, and those for async tasks."""
        return (
            self.slots + (place <= self.more_slots),
            self.async_slots + (place <= self.more_async_slots),
        )


class ProcessPool:
    """The child processes of one application, which the target names as "module:attribute"."""

    def __init__(self, engine: Engine, target: str, settings: PoolSettings) -> None:
        assert settings.processes > 0, "a pool has at least one process"
        assert settings.slots > 0, "a child runs at least one attempt at a time"
        self._engine = engine
        self._target = target
        self._settings = settings
        self._children: set[ChildSupervisor] = set()
        self._place_tasks: list[asyncio.Task[None]] = []
        self._first: Attach | None = None  # what the first child has; the others have the same
        self._child_ended = asyncio.Event()
        self._suspects_task: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._reloaded = asyncio.Event()  # set for a moment by each reload
        self._is_code_new = False  # the schedules of the reloaded code are not declared yet
        self._grace = Grace()

    async def prepare(self) -> None:
        """Start the children, which get work once the engine has started; raise CannotServe."""
        first = await self._spawn_first()
        self._first = first.attached.result()
        children = [first, *[None] * (self._settings.processes - 1)]
        self._place_tasks = [
            asyncio.create_task(self._keep_running(place, child))
            for place, child in enumerate(children, 1)
        ]

    async def start(self) -> None:
        """Start the children and store the application's schedules; raise CannotServe."""
        if self._settings.is_reloading:
            from schedo.worker.process.source_watch import SourceWatch  # only for development

            self._watch_task = asyncio.create_task(SourceWatch(Path.cwd(), self.reload).run())
        if self._first is None:
            await self.prepare()
        attach = self._first
        assert attach is not None, "the first child has attached"
        await self._declare(attach)
        if attach.unused_store is not None:
            log.warning(
                "%s does not use its own store %s: its jobs are in the store of this server",
                *(self._target, attach.unused_store),
            )
        self._suspects_task = asyncio.create_task(self._isolate_suspects(frozenset(attach.tasks)))

    async def _spawn_first(self) -> ChildSupervisor:
        """Return the first child; when sources are watched, once the code can be imported."""
        while True:
            self._is_code_new = False
            try:
                return await self._spawn_child(1)
            except CannotServe as error:
                if not self._settings.is_reloading:
                    raise
                log.error("%s; the start continues when a source file changes", error)
            if not self._is_code_new:
                await self._reloaded.wait()

    async def _declare(self, attach: Attach) -> None:
        await declare_schedules(
            self._engine,
            f"code:{self._target}",
            attach.schedules,
            is_pruning=self._settings.is_pruning,
        )
        log.info("%s has %s", self._target, _describe(attach))

    async def _declare_new(self, child: ChildSupervisor) -> None:
        """Put the schedules of reloaded code; an error is logged, and the child works on."""
        self._is_code_new = False
        try:
            await self._declare(child.attached.result())
        except SchedoError as error:
            log.error("the schedules of %s were not put: %s", self._target, error)

    def follow(self, successor: SuccessorBackend) -> None:
        """Send the requests of the tasks that still run to the server that follows this one."""
        for child in self._children:
            child.follow(successor)

    def reload(self) -> None:
        """Replace all children by new ones, which import the application again.

        Attempts that run finish in the old ones. While the new code cannot be imported, jobs wait.
        """
        self._is_code_new = True
        for child in list(self._children):
            child.retire()
        self._reloaded.set()
        self._reloaded.clear()

    async def _isolate_suspects(self, tasks: frozenset[str]) -> None:
        """Start one more process per place once poison suspects wait.

        Each of these runs one attempt at a time. The suspects may come from a child that died, from
        a remote worker, or from a previous server.
        """
        spec = WorkerSpec("process", 1, tasks, isolated=True)
        while not self._engine.sessions.has_suspects_for(spec):  # noqa: ASYNC110  # no event
            await asyncio.sleep(SUSPECTS_CHECKED_S)
        self._place_tasks += [
            asyncio.create_task(self._keep_running(place, None, isolated=True))
            for place in range(1, self._settings.processes + 1)
        ]

    async def stop(self, grace_s: float | None) -> None:
        """Let running attempts finish within the grace time; release the rest."""
        running = [*self._place_tasks, *filter(None, [self._suspects_task, self._watch_task])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        children = list(self._children)
        for child in children:
            child.retire()
        await self._grace.wait(_all_gone(children), grace_s)
        for child in children:
            if not child.gone.is_set():
                child.terminate()
        await _all_gone(children)

    def stop_now(self) -> None:
        """End the grace time of a stop now."""
        self._grace.end()

    async def _keep_running(
        self, place: int, child: ChildSupervisor | None, *, isolated: bool = False
    ) -> None:
        """Run one child after another in one place of the pool."""
        delay_s = RESPAWN_AFTER_S
        while True:
            began = time.monotonic()
            try:
                child = child or await self._spawn_child(place, isolated=isolated)
                if self._is_code_new and not child.retired.is_set():  # else its code is old
                    await self._declare_new(child)
                await child.retired.wait()
            except (CannotServe, OSError, RuntimeError) as error:  # such as no more threads
                log.error("cannot start a child process: %s", error)
                if self._settings.is_reloading:  # the next change ends the pause
                    delay_s = RESPAWN_AFTER_S_MAX
            if time.monotonic() - began > RESPAWN_AFTER_S_MAX:
                delay_s = RESPAWN_AFTER_S
            if child is None or child.gone.is_set():
                await self._pause(delay_s)
                delay_s = min(2 * delay_s, RESPAWN_AFTER_S_MAX)
            while len(self._children) >= 2 * len(self._place_tasks):
                self._child_ended.clear()
                await self._child_ended.wait()
            child = None

    async def _pause(self, delay_s: float) -> None:
        """Wait for the delay or the next reload."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._reloaded.wait()

    async def _spawn_child(self, place: int, *, isolated: bool = False) -> ChildSupervisor:
        """Return a new child that has attached; raise CannotServe, OSError or RuntimeError."""
        child = await self._spawn(place, isolated)
        try:
            async with asyncio.timeout(self._settings.timeouts.import_s):
                await asyncio.shield(child.attached)
        except TimeoutError:
            seconds = f"{self._settings.timeouts.import_s:g} s"
            error = CannotServe(
                f"the import of {self._target} did not finish within {seconds}; does the module"
                " block, for example on the network?"
            )
        except CannotServe as reason:
            error = reason
        except asyncio.CancelledError:
            child.kill()
            raise
        else:
            return child
        child.kill()
        await child.gone.wait()
        raise error

    async def _spawn(self, place: int, isolated: bool) -> ChildSupervisor:
        settings = self._settings
        slots, async_slots = (1, 0) if isolated else settings.slots_of(place)
        with contextlib.ExitStack() as owned:
            descriptor = make_memory()
            owned.callback(os.close, descriptor)
            memory = ChildMemory.map(descriptor)
            ours, theirs = socket.socketpair()
            owned.callback(theirs.close)
            try:
                at_start, after_start = _split_environment(os.environb)
                environment = write_unnamed_file(marshal.dumps(after_start))
                owned.callback(os.close, environment)
                process = ChildHandle(
                    self._start_process(theirs, descriptor, environment, slots, at_start)
                )
            except BaseException:
                ours.close()
                raise
        spec = WorkerSpec(
            f"process-{process.pid}",
            slots,
            frozenset(),
            isolated=isolated,
            labels={PLACE_LABEL: str(place)},
        )
        child = ChildSupervisor(
            self._engine,
            process,
            memory,
            ChildSlots(spec, async_slots),
            settings.timeouts,
            self._on_child_gone,
        )
        self._children.add(child)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: child.connection, sock=ours)
        return child

    def _start_process(
        self,
        theirs: socket.socket,
        memory: int,
        environment: int,
        slots: int,
        at_start: Mapping[bytes, bytes],
    ) -> subprocess.Popen[bytes]:
        # This blocks the loop for a millisecond. A thread of an executor cannot do it, because the
        # kernel kills the child when the thread that started it ends (PR_SET_PDEATHSIG).
        return subprocess.Popen(
            self._command(theirs.fileno(), memory, environment, slots),
            env=at_start,
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(theirs.fileno(), memory, environment),
            process_group=0,  # not a session, see docs/adr/0078
        )

    def _command(self, descriptor: int, memory: int, environment: int, slots: int) -> list[str]:
        options: dict[str, object] = {
            "fd": descriptor,
            "memory": memory,
            "environment": environment,
            "slots": slots,
            "grace": self._settings.timeouts.grace_s,
            "parent": os.getpid(),
            "closed": int(is_undumpable()),
            "cluster": int(self._engine.cluster is not None),
            "log-format": self._settings.log_format,
            "log-level": self._settings.log_level,
        }
        named = [f"--{name}={value}" for name, value in options.items()]
        return [*module_command("schedo.worker.process.child"), *named, self._target]

    def _on_child_gone(self, child: ChildSupervisor, message: str) -> None:
        self._children.discard(child)
        self._child_ended.set()
        log.info("%s has ended: %s", child.worker_id, message)


async def _all_gone(children: Iterable[ChildSupervisor]) -> None:
    for child in children:
        await child.gone.wait()


def _split_environment(
    environ: Mapping[bytes, bytes],
) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the variables that a child starts with, and those that it gets once it runs.

    Other processes of the same user can read a new process until it has made itself not dumpable,
    so variables that may be secrets follow after that. The child gets no SCHEDO_ variable at all.
    """
    at_start: dict[bytes, bytes] = {}
    after_start: dict[bytes, bytes] = {}
    for name, value in environ.items():
        if not name.startswith(b"SCHEDO_"):
            (at_start if _FOR_THE_START.match(name) else after_start)[name] = value
    return at_start, after_start


def _describe(attach: Attach) -> str:
    names = ", ".join(sorted(attach.tasks)) or "none"
    return f"tasks: {names}; schedules: {len(attach.schedules)}"
