"""Keeps a number of child processes running an application's tasks.

A child that dies is replaced, sooner after a long life than after a short one. A child that is
retired is replaced at once, while it still finishes what it runs; so that handlers which block for
ever cannot fill the machine, no more children than this are retired at a time as there are places.
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
import sys
import time
from collections.abc import Mapping

from schedo.child_process import ChildHandle, write_unnamed_file
from schedo.engine.engine import Engine
from schedo.hardening import is_closed
from schedo.log_format import LogFormat
from schedo.worker.process.frames import Attach
from schedo.worker.process.start_counter import StartCounter, make_memory
from schedo.worker.process.supervisor import CannotServe, ChildSupervisor, ChildTimeouts

TIMEOUTS = ChildTimeouts()
# What the system's loader, the C library and the interpreter read before any line of ours.
_FOR_THE_START = re.compile(
    rb"(PATH|HOME|LANG|LC_.*|TZ|LD_.*|DYLD_.*|MALLOC_.*|GLIBC_.*|PYTHON.*)\Z"
)
RESPAWN_AFTER_S = 0.1
RESPAWN_AFTER_S_MAX = 5.0

log = logging.getLogger("schedo.workers")


class ProcessPool:
    """The child processes of one application; `slots` is how many attempts each runs at a time."""

    def __init__(
        self,
        engine: Engine,
        target: str,
        *,
        processes: int,
        slots: int,
        patience: ChildTimeouts = TIMEOUTS,
        log_format: LogFormat = "text",
        log_level: str = "info",
    ) -> None:
        assert processes > 0, "somebody must do the work"
        assert slots > 0, "a child runs at least one attempt at a time"
        self._engine = engine
        self._target = target
        self._processes = processes
        self._slots = slots
        self._patience = patience
        self._log = {"log-format": log_format, "log-level": log_level}
        self._all: set[ChildSupervisor] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._one_left = asyncio.Event()
        self._has_cells = False
        self._hurried = asyncio.Event()

    async def start(self) -> None:
        """Start the children and put the application's schedules; raise CannotServe."""
        first = await self._spawn_child()
        attach = first.attached.result()
        for schedule in attach.schedules:
            await self._engine.put_schedule(schedule)
        log.info("%s has %s", self._target, _describe(attach))
        places = [first, *[None] * (self._processes - 1)]
        self._keepers = [asyncio.create_task(self._keep_filled(place)) for place in places]

    def _isolate_suspects(self) -> None:
        """Keep processes for those who may have killed one: there each runs alone."""
        if not self._has_cells:
            self._has_cells = True
            self._keepers += [
                asyncio.create_task(self._keep_filled(None, alone=True))
                for _ in range(self._processes)
            ]

    async def stop(self, grace_s: float) -> None:
        """Let running attempts finish within the grace time; hand back the rest, uncounted."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        everybody = list(self._all)
        for attendant in everybody:
            attendant.retire()
        hurry = asyncio.create_task(self._hurried.wait())
        gone = asyncio.gather(*(attendant.gone.wait() for attendant in everybody))
        await asyncio.wait((hurry, gone), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        for attendant in everybody:
            if not attendant.gone.is_set():
                attendant.terminate()
        await gone

    def stop_now(self) -> None:
        """Cut the grace of a stop short."""
        self._hurried.set()

    async def _keep_filled(self, attendant: ChildSupervisor | None, *, alone: bool = False) -> None:
        """Keep one place filled."""
        pause_s = RESPAWN_AFTER_S
        while True:
            began = time.monotonic()
            try:
                attendant = attendant or await self._spawn_child(alone=alone)
                await attendant.retired.wait()
            except (CannotServe, OSError) as error:
                log.error("cannot start a child process: %s", error)
            if time.monotonic() - began > RESPAWN_AFTER_S_MAX:
                pause_s = RESPAWN_AFTER_S
            if attendant is None or attendant.gone.is_set():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RESPAWN_AFTER_S_MAX)
            while len(self._all) >= 2 * len(self._keepers):
                self._one_left.clear()
                await self._one_left.wait()
            attendant = None

    async def _spawn_child(self, *, alone: bool = False) -> ChildSupervisor:
        """Return a new child that has attached; raise CannotServe or OSError."""
        attendant = await self._spawn(alone)
        try:
            async with asyncio.timeout(self._patience.import_s):
                await asyncio.shield(attendant.attached)
        except TimeoutError:
            seconds = f"{self._patience.import_s:g} s"
            error = CannotServe(f"{self._target} was not imported within {seconds}")
        except CannotServe as reason:
            error = reason
        except asyncio.CancelledError:
            attendant.kill()
            raise
        else:
            return attendant
        attendant.kill()
        await attendant.gone.wait()
        raise error

    async def _spawn(self, alone: bool) -> ChildSupervisor:
        slots = 1 if alone else self._slots
        with contextlib.ExitStack() as given:
            memory = make_memory()
            given.callback(os.close, memory)
            starts = StartCounter(memory)
            ours, theirs = socket.socketpair()
            given.callback(theirs.close)
            try:
                now, later = _split_environment(os.environb)
                environment = write_unnamed_file(marshal.dumps(later))
                given.callback(os.close, environment)
                process = ChildHandle(self._start_process(theirs, memory, environment, slots, now))
            except OSError:
                ours.close()
                raise
        attendant = ChildSupervisor(
            self._engine, process, starts, slots, self._patience, self._forget, alone=alone
        )
        self._all.add(attendant)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: attendant.connection, sock=ours)
        return attendant

    def _start_process(
        self,
        theirs: socket.socket,
        memory: int,
        environment: int,
        slots: int,
        now: Mapping[bytes, bytes],
    ) -> subprocess.Popen[bytes]:
        # On the loop's own thread, for a millisecond: the child dies with the thread that starts it
        # (PR_SET_PDEATHSIG).
        return subprocess.Popen(
            self._command(theirs.fileno(), memory, environment, slots),
            env=now,
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(theirs.fileno(), memory, environment),
            start_new_session=True,
        )

    def _command(self, descriptor: int, memory: int, environment: int, slots: int) -> list[str]:
        options: dict[str, object] = {
            "fd": descriptor,
            "starts": memory,
            "environment": environment,
            "slots": slots,
            "grace": self._patience.grace_s,
            "parent": os.getpid(),
            "closed": int(is_closed()),
            **self._log,
        }
        named = [f"--{name}={value}" for name, value in options.items()]
        return [sys.executable, "-m", "schedo.worker.process.child", *named, self._target]

    def _forget(self, attendant: ChildSupervisor, message: str) -> None:
        self._all.discard(attendant)
        if attendant.has_suspects:
            self._isolate_suspects()
        self._one_left.set()
        log.info("%s has ended: %s", attendant.worker_id, message)


def _split_environment(
    environ: Mapping[bytes, bytes],
) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the variables that a child is started with, and those that it is given once it runs.

    A process that starts can be read by others of its user until it has closed itself, so what may
    be a secret comes after that. It gets no setting of the server at all.
    """
    now: dict[bytes, bytes] = {}
    later: dict[bytes, bytes] = {}
    for name, value in environ.items():
        if not name.startswith(b"SCHEDO_"):
            (now if _FOR_THE_START.match(name) else later)[name] = value
    return now, later


def _describe(attach: Attach) -> str:
    names = ", ".join(sorted(attach.tasks)) or "none"
    return f"tasks: {names}; schedules: {len(attach.schedules)}"
