"""Commands that the starter runs for the server: started, signalled, and their ends noticed.

The starter (see there) is started with the first command, and again if it has died. With it are
lost the ends of what it had started, so each of those ends here with an error, and its runner must
see to it that nothing of it runs on. While it has anything to do it is asked for a sign of life;
one that stays silent (stopped, or stuck in a system call) is killed and counts as dead.
A command leads its own session, has only descriptors 0, 1 and 2, umask 077 and no core dumps.
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
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from schedo.child_process import ChildHandle, write_unnamed_file
from schedo.core.leases import Blame
from schedo.hardening import is_closed
from schedo.silence_timer import SilenceTimer
from schedo.tasks.shell import spawner_process

PULSE_S = 1.0  # between two looks for a sign of life
STALLED_S = 3.0  # of silence
_READ_BYTES = 65_536
_END_S = 0.5  # for which the loop is kept waiting at most
_STARTER_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME")  # what an interpreter may need

log = logging.getLogger("schedo.workers")


class Command(NamedTuple):
    """What to start; env is the whole environment."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    stdin: bytes | None = None


OnStart = Callable[[int, int | None], None]  # the pid, and the tick at which it was its own


class SpawnerDied(Exception):
    """The process that had started the command is gone, and how the command ends is unknown.

    The command alone may be the cause if it was the only one.
    """

    def __init__(self, blame: Blame) -> None:
        super().__init__("the process that starts commands has died")
        self.blame = blame


class Running:
    """One command, from the request to start it until it is released."""

    def __init__(self, number: int, starting: _SpawnerConnection, on_start: OnStart) -> None:
        self._number = number
        self._starting = starting
        self._on_start = on_start
        self._is_signalled = False
        self.pid: int | None = None  # once it has started
        # The exit code or minus the signal; OSError or ValueError if it could not be started.
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def signal_group(self, number: signal.Signals) -> None:
        """Send the signal to the whole group; from now on the command is to be released."""
        self._is_signalled = True
        self._starting.send((spawner_process.SIGNAL, self._number, int(number)))

    def release(self) -> None:
        """Let the pid go, now or when it ends; it is signalled no more."""
        if self._is_signalled:
            self._is_signalled = False
            self._starting.send((spawner_process.RELEASE, self._number))

    def abandon(self) -> None:
        """Kill the group now; for when nobody can wait for its end."""
        self._on_start = lambda pid, ticks: None
        self.signal_group(signal.SIGKILL)
        self.release()

    # What the starter says.

    def note_start(self, pid: int, ticks: int | None) -> None:
        """It runs; its pid was its own at that time."""
        self.pid = pid
        self._on_start(pid, ticks)

    def note_refusal(self, code: int | None, text: str, filename: str | None) -> None:
        """It could not be started."""
        self.fail(ValueError(text) if code is None else OSError(code, text, filename))

    def ended_with(self, status: int) -> None:
        """Its first process has exited."""
        if not self.ended.done():
            self.ended.set_result(status)

    def fail(self, error: Exception) -> None:
        """Nothing more will be heard of it."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # an abandoned one has nobody to look at it


class Spawner:
    """Starts commands; for one loop."""

    def __init__(self) -> None:
        self._starting: _SpawnerConnection | None = None

    def start(
        self,
        command: Command,
        stdout: int,
        stderr: int,
        on_start: OnStart = lambda pid, ticks: None,
    ) -> Running:
        """Ask for the command to be started; on_start is called when it has been.

        The descriptors can be closed at once. OSError is raised if there is no way to ask.
        """
        if self._starting is None or self._starting.is_dead:
            self._starting = _SpawnerConnection()
        if command.stdin is None:
            return self._starting.start(command, (stdout, stderr), on_start)
        stdin = write_unnamed_file(command.stdin)
        try:
            return self._starting.start(command, (stdout, stderr, stdin), on_start)
        finally:
            os.close(stdin)

    def not_ready_reasons(self) -> list[str]:
        """Return in a sentence why commands would not start in time."""
        silence_s = 0.0 if self._starting is None else self._starting.silence_s
        if not silence_s:
            return []
        return [f"the process that starts commands has not answered for {silence_s:g} s"]

    def close(self) -> None:
        """End the starter; what still runs is heard of no more."""
        if self._starting is not None:
            self._starting.close()
            self._starting = None


class _SpawnerConnection:
    """One starter, the socket to it, and what it runs."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._running: dict[int, Running] = {}
        self._unsent: deque[tuple[bytes, Sequence[int]]] = deque()
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                # Before any command; on the loop's thread it takes a millisecond, once.
                self._process = ChildHandle(_run_starter(theirs))
        except OSError:
            self._socket.close()
            raise
        self.is_dead = False
        self.silence_s = 0.0  # since it was last asked for a sign of life
        self._is_asked = False
        self._pulse: SilenceTimer | None = None
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._read)

    def start(self, command: Command, descriptors: Sequence[int], on_start: OnStart) -> Running:
        """Ask for a start with descriptors for stdout, stderr and perhaps stdin."""
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
        if self._pulse is None:
            self._pulse = SilenceTimer(PULSE_S, self._feel_pulse)
        return running

    def _feel_pulse(self) -> None:
        self._pulse = None
        if self._is_asked:
            self.silence_s += PULSE_S
            if self.silence_s >= STALLED_S:
                self._die(f"has not answered for {self.silence_s:g} s and is killed,")
                return
        elif not self._running:
            return
        else:
            self._is_asked = True
            self.send((spawner_process.PING, 0))
        self._pulse = SilenceTimer(PULSE_S, self._feel_pulse)

    def send(self, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
        """Send now, or as soon as the starter has read more; after its death, nothing."""
        if self.is_dead:
            return
        data = marshal.dumps(message)
        data = spawner_process.LENGTH.pack(len(data)) + data
        sent = 0 if self._unsent else self._send_some(data, descriptors)
        if sent < len(data):
            kept = [os.dup(each) for each in descriptors] if sent == 0 else []
            self._unsent.append((data[sent:], kept))
            self._loop.add_writer(self._socket.fileno(), self._send_rest)

    def _send_some(self, data: bytes, descriptors: Sequence[int]) -> int:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            return self._socket.sendmsg([data], [rights] if descriptors else [])
        except BlockingIOError:
            return 0
        except OSError:  # it has died, and _read will find that out
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
        self._is_asked, self.silence_s = False, 0.0  # whatever it says is a sign of life
        self._received += data
        head = spawner_process.LENGTH.size
        while len(self._received) >= head:
            end = head + spawner_process.LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            news = marshal.loads(self._received[head:end])
            del self._received[:end]
            for what, number, *rest in news:
                self._note(what, number, rest)

    def _note(self, what: str, number: int, rest: list[Any]) -> None:
        if what == spawner_process.STARTED:
            self._running[number].note_start(*rest)
        elif what == spawner_process.ENDED:
            self._running.pop(number).ended_with(*rest)
        elif what == spawner_process.REFUSED:
            self._running.pop(number).note_refusal(*rest)

    def _die(self, how: str) -> None:
        count = len(self._running)
        self.close()
        log.error("the process that starts commands %s with %d of them", how, count)

    def close(self) -> None:
        """Let the starter end, and everything that it runs be unknown."""
        if self.is_dead:
            return
        self.is_dead = True
        self.silence_s = 0.0
        if self._pulse is not None:
            self._pulse.cancel()
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
        # It ends within a millisecond. Stuck in a system call, it is reaped when it gets out.
        self._process.abandon(_END_S)


def _run_starter(theirs: socket.socket) -> subprocess.Popen[bytes]:
    arguments = [str(theirs.fileno()), *([spawner_process.CLOSED] if is_closed() else [])]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-X", "utf8", spawner_process.__file__, *arguments],
        # Commands can read the environment of their parent.
        env={name: v for name, v in os.environ.items() if name in _STARTER_VARIABLES},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
    )
