"""A process that runs an application's tasks: `python -m schedo.worker.process.child myapp:app`.

The server starts it with one end of a socket pair and never imports user code itself. The process
lives as long as that socket: when the server is gone, however it went, so is the process. A lease
that lay too long before it could start (another handler blocked the loop) is handed back unstarted,
because the server will have given it to somebody else by then; both read the same clock.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import faulthandler
import importlib
import logging
import marshal
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from schedo.core.leases import AttemptResult, Failed, Lease
from schedo.core.model import Failure, LeaseKey
from schedo.hardening import close_process
from schedo.log_format import hold_libraries_back, make_handler
from schedo.tasks.progress import Progress, Said
from schedo.tasks.python import TaskRunner, Watcher
from schedo.tasks.registry import Application, Registry
from schedo.tasks.runner import AttemptContext, StopSignal
from schedo.worker.process import frames
from schedo.worker.process.backend_client import ChildBackend
from schedo.worker.process.start_counter import StartCounter

EXIT_CANNOT_IMPORT = 2
EXIT_SERVER_LOST = 3
_EXPLANATION_CHARACTERS_MAX = 8_192
_PR_SET_PDEATHSIG = 1

log = logging.getLogger("schedo.workers")


class TargetError(Exception):
    """What was to be served is not there, or is no application."""


def load_target(target: str) -> Application:
    """Return the application named "module:attribute"; raise what its import raises."""
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise TargetError(f"{target!r} does not name an application; write module:attribute")
    app: Any = importlib.import_module(module_name)
    for name in (attribute or "app").split("."):
        try:
            app = getattr(app, name)
        except AttributeError:
            raise TargetError(f"{module_name} has no {attribute or 'app'!r}") from None
    if not isinstance(getattr(app, "registry", None), Registry):
        raise TargetError(f"{target} is a {type(app).__name__}, not a Schedo application")
    served: Application = app
    return served


class _Held(NamedTuple):
    """What is known of a lease that is here."""

    number: int  # the how manieth to be sent
    stop: StopSignal
    start_by: float  # on the monotonic clock


class Child(Watcher):
    """Runs what the server leases, until it is drained or the socket closes."""

    def __init__(self, app: Application, starts: StartCounter, slots: int, grace_s: float) -> None:
        self._starts = starts
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="schedo")
        self._runners = {
            name: TaskRunner(task, self._threads, grace_s=grace_s, watcher=self)
            for name, task in app.registry.tasks.items()
        }
        self._held: dict[LeaseKey, _Held] = {}
        self._leases = 0  # that were ever sent
        self._is_draining = False
        self._has_left = False  # the server has still to read what was said last
        self._drained = asyncio.get_running_loop().create_future()
        self._connection = frames.FrameConnection(
            frames.server_frames(), self._on_frame, self._on_closed
        )
        self._desk = ChildBackend(self._connection.send)
        app.use_backend(self._desk)
        self._attach = frames.Attach(
            os.getpid(), app.registry.task_defaults(), list(app.registry.schedules.values())
        )

    async def run(self, server: socket.socket) -> None:
        """Attach to the server, work, and return when drained and heard to the last word."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._connection, sock=server)
        self._progress = Progress(self._pass_on)
        self._connection.send(self._attach)
        await self._drained

    def _on_frame(self, frame: frames.FromServer) -> None:
        if self._has_left:
            return
        match frame:
            case frames.Leases(leases, start_by):
                for lease in leases:
                    self._start(lease, start_by)
            case frames.Stops(stops):
                for key, reason in stops:
                    if key in self._held:
                        self._held[key].stop.set(reason)
            case frames.Ping():
                self._connection.send(frames.Pong())
            case frames.BackendResponse():
                self._desk.receive(frame)
            case frames.Drain():
                self._is_draining = True
                self._leave_if_drained()

    def _start(self, lease: Lease, start_by: float) -> None:
        stop = StopSignal()
        self._leases += 1
        self._held[lease.key] = _Held(self._leases, stop, start_by)
        runner = self._runners.get(lease.task)
        if runner is None:
            message = f"this application has no task {lease.task!r}"
            self._end(AttemptResult(lease.key, Failed(Failure("unknown-task", message))))
        else:
            runner.begin(AttemptContext(lease, stop, self._progress.tell), self._end)

    def _end(self, report: AttemptResult) -> None:
        """Say so to the server at once: what runs next may block the loop or end the process."""
        del self._held[report.key]
        self._progress.forget(report.key)
        self._connection.send(frames.Result(report))
        self._leave_if_drained()

    def _pass_on(self, key: LeaseKey, said: Said) -> None:
        self._connection.send(frames.Progressed(key, said))

    def may_start(self, key: LeaseKey) -> bool:
        """Let the server see it; tasks take their first steps in the order they were made in."""
        held = self._held[key]
        if time.monotonic() > held.start_by:
            return False
        self._starts.count = held.number
        return True

    def abandoned(self, key: LeaseKey) -> None:
        """Tell the server that this process must be replaced."""
        self._connection.send(frames.Abandoned(key))

    def _leave_if_drained(self) -> None:
        if self._is_draining and not self._held and not self._has_left:
            self._has_left = True
            self._connection.finish()

    def _on_closed(self, fault: str | None) -> None:
        if self._has_left:
            self._drained.set_result(None)
            return
        # Whatever runs here is lost already and will run again elsewhere, so it must end at once.
        print(f"schedo: {fault or 'the server is gone'}; this child ends", file=sys.stderr)
        sys.stdout.flush()
        os._exit(EXIT_SERVER_LOST)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the application named on the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m schedo.worker.process.child")
    parser.add_argument("target", help="module:attribute")
    parser.add_argument("--fd", type=int, required=True, help="the socket to the server")
    parser.add_argument("--starts", type=int, required=True, help="the memory shared with it")
    parser.add_argument("--environment", type=int, required=True, help="a file with more of it")
    parser.add_argument("--slots", type=int, required=True, help="attempts at a time")
    parser.add_argument("--grace", type=float, required=True, help="seconds for a stopped handler")
    parser.add_argument("--parent", type=int, required=True, help="process id of the server")
    parser.add_argument("--closed", type=int, default=0, help="1: as the server's process is")
    parser.add_argument("--log-format", required=True, help="as the server's")
    parser.add_argument("--log-level", required=True, help="as the server's")
    options = parser.parse_args(arguments)
    if options.closed:
        close_process()
    _die_with(options.parent)
    _take_environment(options.environment)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2)  # the server asks for the stacks of a blocked child
    logging.basicConfig(
        level=options.log_level.upper(), handlers=[make_handler(options.log_format)]
    )
    hold_libraries_back()
    os.set_inheritable(options.fd, False)
    server = socket.socket(fileno=options.fd)
    starts = StartCounter(options.starts)
    os.close(options.starts)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        app = load_target(options.target)
    except BaseException as error:  # an import may also call sys.exit
        server.sendall(frames.encode_frame(frames.CannotImport(_explain(error))))
        return EXIT_CANNOT_IMPORT
    asyncio.run(_serve(app, options, starts, server))
    return 0


async def _serve(
    app: Application, options: argparse.Namespace, starts: StartCounter, server: socket.socket
) -> None:
    await Child(app, starts, options.slots, options.grace).run(server)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the server dies, even while a handler blocks it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(EXIT_SERVER_LOST)


def _take_environment(descriptor: int) -> None:
    """Add the variables that lie in the file."""
    with open(descriptor, "rb") as file:
        os.environb.update(marshal.loads(file.read()))


def _explain(error: BaseException) -> str:
    if isinstance(error, TargetError):
        return str(error)
    told = traceback.TracebackException.from_exception(error)
    # This module and the import machinery stand between the application and the reader.
    told.stack = traceback.StackSummary.from_list(
        [
            frame
            for frame in told.stack
            if frame.filename not in (__file__, importlib.__file__)
            and not frame.filename.startswith("<frozen importlib")
        ]
    )
    return "".join(told.format())[-_EXPLANATION_CHARACTERS_MAX:].rstrip()


if __name__ == "__main__":
    sys.exit(main())
