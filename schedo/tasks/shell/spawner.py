"""The server's end of the spawner: starts commands, signals them, and learns of their ends.

The first command starts the spawner process (spawner_process.py), and a command after its death
starts it again. When the spawner dies, the exit codes of its commands are lost, so each of them
fails with SpawnerDied and its runner must kill what is left of it. The server pings the spawner
while it has commands, and kills a spawner that does not respond (stopped, or stuck in a system
call). A command leads its own session, and has only the descriptors 0, 1 and 2, umask 077 and no
core dumps.
"""

from __future__ import annotations

import array
import asyncio
import itertools
import logging
import marshal
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from schedo.child_process import ChildHandle, write_unnamed_file
from schedo.core.leases import Blame
from schedo.hardening import is_undumpable
from schedo.program import module_command
from schedo.silence_timer import SilenceTimer
from schedo.tasks.shell import spawner_process

PULSE_S = 1.0  # between two liveness checks
STALLED_S = 3.0  # without a response to a ping
_READ_BYTES = 65_536
_END_S = 0.5  # the longest time that the end of the spawner may block the loop
_INTERPRETER = ("-I", "-S", "-X", "utf8", spawner_process.__file__)
_SPAWNER_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME")  # for the interpreter

log = logging.getLogger("schedo.worker")


class Command(NamedTuple):
    """A command to start; `env` is its complete environment."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    stdin: bytes | None = None


OnStart = Callable[[int, int | None], None]  # the pid, and a tick at which the command had it


class SpawnerDied(Exception):
    """The spawner of the command has died, so the command's exit code is unknown.

    The blame is on the command alone if it was the only one of that spawner.
    """

    def __init__(self, blame: Blame) -> None:
        super().__init__("the spawner, the process that starts commands, has died")
        self.blame = blame


class Running:
    """One command, from the request to start it until its release."""

    def __init__(self, number: int, connection: _SpawnerConnection, on_start: OnStart) -> None:
        self._number = number
        self._connection = connection
        self._on_start = on_start
        self._needs_release = False
        self.pid: int | None = None  # once it has started
        # The exit code or the negated signal; OSError or ValueError if the command cannot start.
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def signal_group(self, number: signal.Signals) -> None:
        """Send the signal to the whole group; the caller must call release() afterwards."""
        self._needs_release = True
        self._connection.send((spawner_process.SIGNAL, self._number, int(number)))

    def release(self) -> None:
        """Let the spawner reap the process, now or when it ends; no signal may follow."""
        if self._needs_release:
            self._needs_release = False
            self._connection.send((spawner_process.RELEASE, self._number))

    def abandon(self) -> None:
        """Kill the group now, without waiting for its end."""
        self._on_start = lambda pid, ticks: None
        self.signal_group(signal.SIGKILL)
        self.release()

    # The spawner's messages.

    def on_started(self, pid: int, ticks: int | None) -> None:
        """The command runs; it had the pid at that tick."""
        self.pid = pid
        self._on_start(pid, ticks)

    def on_refused(self, code: int | None, text: str, filename: str | None) -> None:
        """The command could not start."""
        self.fail(ValueError(text) if code is None else OSError(code, text, filename))

    def on_ended(self, status: int) -> None:
        """The command's first process has exited."""
        if not self.ended.done():
            self.ended.set_result(status)

    def fail(self, error: Exception) -> None:
        """The command has ended with an error, or its end is unknown."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # mark it as retrieved: the caller may have abandoned it


class Spawner:
    """Starts commands through a spawner process; for one event loop."""

    def __init__(self) -> None:
        self._connection: _SpawnerConnection | None = None

    def start(
        self,
        command: Command,
        stdout: int,
        stderr: int,
        on_start: OnStart = lambda pid, ticks: None,
    ) -> Running:
        """Send the command to the spawner; on_start is called when it has started.

        The caller may close the descriptors at once. Raise OSError if no spawner can start.
        """
        connection = self.prepare()
        if command.stdin is None:
            return connection.start(command, (stdout, stderr), on_start)
        stdin = write_unnamed_file(command.stdin)
        try:
            return connection.start(command, (stdout, stderr, stdin), on_start)
        finally:
            os.close(stdin)

    def prepare(self) -> _SpawnerConnection:
        """Start the spawner process if there is none; raise OSError."""
        if self._connection is None or self._connection.is_dead:
            self._connection = _SpawnerConnection()
        return self._connection

    def not_ready_reasons(self) -> list[str]:
        """Return why commands would not start in time, as a list of at most one sentence."""
        silence_s = 0.0 if self._connection is None else self._connection.silence_s
        if not silence_s:
            return []
        return [f"the spawner of commands has not answered for {silence_s:g} s"]

    def close(self) -> None:
        """End the spawner; the ends of commands that still run stay unknown."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _SpawnerConnection:
    """One spawner process, the socket to it, and its running commands."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._running: dict[int, Running] = {}
        self._unsent: deque[tuple[bytes, Sequence[int]]] = deque()
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                # It blocks the loop for a millisecond, once.
                self._process = ChildHandle(_start_process(theirs))
        except OSError:
            self._socket.close()
            raise
        self.is_dead = False
        self.silence_s = 0.0  # since the unanswered ping
        self._has_pinged = False
        self._liveness_timer: SilenceTimer | None = None
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._read)

    def start(self, command: Command, descriptors: Sequence[int], on_start: OnStart) -> Running:
        """Send a start with descriptors for stdout, stderr and perhaps stdin."""
        number = next(self._numbers)
        message = (
            spawner_process.START,
            number,
            list(command.argv),
            dict(command.env),
            command.cwd,
        )
        self.send(message, descriptors)
        running = self._running[number] = Running(number, self, on_start)
        if self._liveness_timer is None:
            self._liveness_timer = SilenceTimer(PULSE_S, self._check_liveness)
        return running

    def _check_liveness(self) -> None:
        self._liveness_timer = None
        if self._has_pinged:
            self.silence_s += PULSE_S
            if self.silence_s >= STALLED_S:
                self._die(f"is killed, because it has not answered for {self.silence_s:g} s")
                return
        elif not self._running:
            return
        else:
            self._has_pinged = True
            self.send((spawner_process.PING, 0))
        self._liveness_timer = SilenceTimer(PULSE_S, self._check_liveness)

    def send(self, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
        """Send now, or as soon as the socket has space; do nothing after the spawner's death."""
        if self.is_dead:
            return
        data = marshal.dumps(message)
        data = spawner_process.LENGTH.pack(len(data)) + data
        sent = 0 if self._unsent else self._send_some(data, descriptors)
        if sent < len(data):
            duplicates = [os.dup(each) for each in descriptors] if sent == 0 else []
            self._unsent.append((data[sent:], duplicates))
            self._loop.add_writer(self._socket.fileno(), self._send_rest)

    def _send_some(self, data: bytes, descriptors: Sequence[int]) -> int:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            return self._socket.sendmsg([data], [rights] if descriptors else [])
        except BlockingIOError:
            return 0
        except OSError:  # the spawner has died; _read notices that
            return len(data)

    def _send_rest(self) -> None:
        while self._unsent:
            data, descriptors = self._unsent[0]
            sent = self._send_some(data, descriptors)
            if sent == 0:
                return
            for descriptor in descriptors:
                os.close(descriptor)
            if sent < len(data):
                self._unsent[0] = (data[sent:], ())
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._die("has died")
            return
        self._has_pinged, self.silence_s = False, 0.0  # any message proves that it lives
        self._received += data
        head = spawner_process.LENGTH.size
        while len(self._received) >= head:
            end = head + spawner_process.LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            events = marshal.loads(self._received[head:end])
            del self._received[:end]
            for kind, number, *rest in events:
                self._handle_event(kind, number, rest)

    def _handle_event(self, kind: str, number: int, rest: list[Any]) -> None:
        if kind == spawner_process.STARTED:
            self._running[number].on_started(*rest)
        elif kind == spawner_process.ENDED:
            self._running.pop(number).on_ended(*rest)
        elif kind == spawner_process.REFUSED:
            self._running.pop(number).on_refused(*rest)

    def _die(self, how: str) -> None:
        count = len(self._running)
        self.close()
        log.error("the spawner of commands %s; %d running commands are lost", how, count)

    def close(self) -> None:
        """End the spawner process, and fail its running commands with SpawnerDied."""
        if self.is_dead:
            return
        self.is_dead = True
        self.silence_s = 0.0
        if self._liveness_timer is not None:
            self._liveness_timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                os.close(descriptor)
        self._unsent.clear()
        blame = Blame.SHARED if len(self._running) > 1 else Blame.SOLE
        for running in self._running.values():
            running.fail(SpawnerDied(blame))
        self._running.clear()
        # It ends within a millisecond. If it hangs in a system call, it is reaped when that ends.
        self._process.abandon(_END_S)


def _start_process(theirs: socket.socket) -> subprocess.Popen[bytes]:
    arguments = [str(theirs.fileno()), *([spawner_process.CLOSED] if is_undumpable() else [])]
    return subprocess.Popen(
        [*module_command(spawner_process.__name__, *_INTERPRETER), *arguments],
        # Without secrets, because commands can read the environment of their parent.
        env={name: v for name, v in os.environ.items() if name in _SPAWNER_VARIABLES},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        process_group=0,  # not a session, see docs/adr/0078
    )
