"""A process that runs an application's tasks: `python -m schedo.worker.process.child myapp:app`.

The server starts the process with one end of a socket pair and never imports user code itself. The
process lives as long as that socket: when the server ends or dies, the process ends, too. It
releases a lease that it could not start in time (because another handler blocked its loop), since
the server has given the job to another process by then; both processes read the same clock.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import faulthandler
import importlib
import logging
import marshal
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from schedo.core.leases import AttemptResult, Lease
from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.garbage import collect_seldom
from schedo.hardening import make_undumpable
from schedo.log_format import make_handler, quiet_libraries
from schedo.protocol import frames
from schedo.suggestions import suggest
from schedo.tasks import hooks
from schedo.tasks.hooks import Hooks, LifespanFailed, running_lifespan
from schedo.tasks.python import TaskRunner, Watcher
from schedo.tasks.registry import Application, Registry
from schedo.tasks.targets import explain_path
from schedo.tasks.task_output import TaskOutput, keep_task_output
from schedo.tasks.threads import HandlerThreads
from schedo.worker.executor import Executor
from schedo.worker.process.backend_client import ChildBackend
from schedo.worker.process.child_memory import ChildMemory
from schedo.worker.process.connection import FrameConnection
from schedo.worker.process.result_batch import ResultBatch

EXIT_CANNOT_IMPORT = 2
EXIT_SERVER_LOST = 3
_EXPLANATION_CHARACTERS_MAX = 8_192
_PR_SET_PDEATHSIG = 1

log = logging.getLogger("schedo.worker")


class TargetError(Exception):
    """The target does not exist, or is not a Schedo application."""


def load_target(target: str) -> Application:
    """Return the application at "module:attribute"; raise TargetError or what the import raises."""
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise TargetError(f"{target!r} is not an application; write module:attribute")
    explained = explain_path(target)
    if explained is not None:
        raise TargetError(f"{target!r}: {explained}")
    app: Any = importlib.import_module(module_name)
    for name in (attribute or "app").split("."):
        try:
            app = getattr(app, name)
        except AttributeError:
            hint = suggest(name, dir(app))
            wanted = attribute or "app"
            raise TargetError(f"module {module_name} has no {wanted!r}{hint}") from None
    if not isinstance(getattr(app, "registry", None), Registry):
        raise TargetError(f"{target} is a {type(app).__name__}, not a Schedo application")
    served: Application = app
    return served


class Child(Watcher):
    """Runs the server's leases until the server drains it or the socket closes."""

    def __init__(
        self,
        app: Application,
        memory: ChildMemory,
        slots: int,
        grace_s: float,
        *,
        is_in_cluster: bool,
    ) -> None:
        self._starts = memory.starts
        threads = HandlerThreads(slots)
        runners = {
            name: TaskRunner(task, threads, grace_s=grace_s, watcher=self, hooks=app.registry.hooks)
            for name, task in app.registry.tasks.items()
        }
        self._executor = Executor(runners, self)
        # By lease, until its handler starts: its position in the order of all leases sent to this
        # process, from 1, and the instant until which it may start, on the monotonic clock.
        self._queued: dict[LeaseKey, tuple[int, float]] = {}
        self._leases_sent = 0  # sent to this process so far
        self._is_in_cluster = is_in_cluster
        self._hangup: select.poll | None = None  # tells that the server is gone
        self._draining: asyncio.Task[None] | None = None  # begun by the server
        self._has_finished = False  # the last frame is sent; the server may still have to read it
        self._drained = asyncio.get_running_loop().create_future()
        self._connection = FrameConnection(frames.server_frames(), self._on_frame, self._on_closed)
        self._results = ResultBatch(memory.staged, self._connection.write)
        self._backend = ChildBackend(self._connection.send)
        app.use_backend(self._backend)
        self._attach = frames.Attach(
            os.getpid(),
            app.registry.task_defaults(),
            list(app.registry.schedules.values()),
            frozenset(name for name, task in app.registry.tasks.items() if task.is_async),
            app.store,
        )

    async def run(self, server: socket.socket) -> None:
        """Attach to the server, run leases, and return when drained and the last frame is read."""
        loop = asyncio.get_running_loop()
        if self._is_in_cluster:
            self._hangup = select.poll()
            self._hangup.register(server, select.POLLHUP)
        await loop.create_unix_connection(lambda: self._connection, sock=server)
        self._connection.send(self._attach)
        await self._drained

    def _on_frame(self, frame: frames.FromServer) -> None:
        if self._has_finished:
            return
        match frame:
            case frames.Leases(leases, start_by):
                self._start(leases, start_by)
            case frames.Stops(stops):
                for key, reason in stops:
                    self._executor.stop(key, reason)
            case frames.Ping():
                self._connection.send(frames.Pong())
            case frames.BackendResponse():
                self._backend.receive(frame)
            case frames.Drain():
                self._draining = asyncio.create_task(self._drain())

    def _start(self, leases: list[Lease], start_by: float) -> None:
        for lease in leases:
            self._leases_sent += 1
            self._queued[lease.key] = (self._leases_sent, start_by)
            self._executor.start(lease)

    async def _drain(self) -> None:
        await self._executor.wait_idle()
        self._has_finished = True
        self._connection.finish()

    # The executor's side.

    def send_result(self, result: AttemptResult) -> None:
        """Send the result, if other attempts run with the other results of this pass."""
        self._queued.pop(result.key, None)
        self._results.add(result)
        if not len(self._executor):
            self._results.flush()

    def send_progress(self, key: LeaseKey, update: ProgressUpdate) -> None:
        """Send the progress of a running attempt."""
        self._connection.send(frames.Progressed(key, update))

    def may_start(self, key: LeaseKey) -> bool:
        """Return whether the lease is young enough to start, and count its start.

        Handlers begin in the order of their leases, so the counter names exactly the leases that
        have started.
        """
        number, start_by = self._queued.pop(key)
        now = time.monotonic()
        self._results.flush_old(now)  # the handler may block the loop
        if now > start_by:
            return False
        # When a server of a cluster dies, another one may start its jobs before the kernel or the
        # event loop has ended this process.
        if self._hangup is not None and self._hangup.poll(0):
            return False
        self._starts.count = number
        return True

    def abandoned(self, key: LeaseKey) -> None:
        """Report that a handler ignores its stop, so that the server replaces this process."""
        self._connection.send(frames.Abandoned(key))

    def _on_closed(self, fault: str | None) -> None:
        if self._has_finished:
            self._drained.set_result(None)
            return
        # The server counts all running attempts as lost and runs them again, so they must end here.
        reason = fault or "the server closed the connection"
        print(f"schedo: {reason}; this child process ends", file=sys.stderr)
        sys.stdout.flush()
        os._exit(EXIT_SERVER_LOST)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the application named on the command line; return the exit code."""
    options = _parse(arguments)
    if options.closed:
        make_undumpable()
    _die_with(options.parent)
    _read_environment(options.environment)
    # Its group is in the background of the server's terminal, if there is one: else the terminal
    # would stop the whole process if a handler touched it.
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2)  # by which the server gets the stacks of a blocked child
    logging.basicConfig(
        level=options.log_level.upper(), handlers=[make_handler(options.log_format)]
    )
    quiet_libraries()
    output = keep_task_output(options.log_format)
    os.set_inheritable(options.fd, False)
    server = socket.socket(fileno=options.fd)
    memory = ChildMemory.map(options.memory)
    os.close(options.memory)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        app = load_target(options.target)
    except BaseException as error:  # an import may also call sys.exit
        server.sendall(frames.encode_frame(frames.CannotImport(_explain(options.target, error))))
        return EXIT_CANNOT_IMPORT
    make_child = partial(
        Child, app, memory, options.slots, options.grace, is_in_cluster=bool(options.cluster)
    )
    try:
        collect_seldom()
        asyncio.run(_serve(app.registry.hooks, output, make_child, server))
    except LifespanFailed as error:
        server.sendall(frames.encode_frame(frames.CannotImport(_explain(options.target, error))))
        return EXIT_CANNOT_IMPORT
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m schedo.worker.process.child")
    parser.add_argument("target", help="module:attribute")
    parser.add_argument("--fd", type=int, required=True, help="the socket to the server")
    parser.add_argument("--memory", type=int, required=True, help="memory shared with the server")
    parser.add_argument("--environment", type=int, required=True, help="file of more variables")
    parser.add_argument("--slots", type=int, required=True, help="plain functions to run at once")
    parser.add_argument("--grace", type=float, required=True, help="seconds for a stopped handler")
    parser.add_argument("--parent", type=int, required=True, help="process id of the server")
    parser.add_argument("--closed", type=int, default=0, help="1: make the process not dumpable")
    parser.add_argument("--cluster", type=int, default=0, help="1: the server is one of several")
    parser.add_argument("--log-format", required=True, help="the server's log format")
    parser.add_argument("--log-level", required=True, help="the server's log level")
    return parser.parse_args(arguments)


async def _serve(
    app_hooks: Hooks, output: TaskOutput, make_child: Callable[[], Child], server: socket.socket
) -> None:
    output.loop = asyncio.get_running_loop()
    async with running_lifespan(app_hooks):
        await make_child().run(server)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the server dies, even while a handler blocks it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(EXIT_SERVER_LOST)


def _read_environment(descriptor: int) -> None:
    """Add the variables in the file, which the server keeps out of /proc/<pid>/environ."""
    with open(descriptor, "rb") as file:
        os.environb.update(marshal.loads(file.read()))


def _explain(target: str, error: BaseException) -> str:
    if isinstance(error, TargetError):
        return str(error)
    failed = f"cannot import {target!r}"
    if isinstance(error, LifespanFailed) and error.__cause__ is not None:
        failed, error = f"the startup of {target!r} failed", error.__cause__
    summary = traceback.TracebackException.from_exception(error)
    # Without the frames of this module and of the import machinery, which do not help the reader.
    summary.stack = traceback.StackSummary.from_list(
        [
            frame
            for frame in summary.stack
            if frame.filename
            not in (__file__, hooks.__file__, contextlib.__file__, importlib.__file__)
            and not frame.filename.startswith("<frozen importlib")
        ]
    )
    text = "".join(summary.format())[-_EXPLANATION_CHARACTERS_MAX:].rstrip()
    return f"{failed}: {text}"


if __name__ == "__main__":
    sys.exit(main())
