"""The spawner: a small process that starts the server's commands and reports their ends.

A start blocks until the new program is loaded, a millisecond and more on a busy machine. In the
server it would delay the timers; here it delays only other starts. The server sends requests
through a socket, and the spawner sends events; each message is marshalled, with its length before
it. The spawner ends when the socket closes, so with the server, and leaves running commands alone.
Rule: a command that was sent a signal is reaped only when the server releases it. Until then its
pid, which is also its group's, cannot belong to another process.

The server runs this file by its path, isolated and without site; it imports only the standard
library.
"""

from __future__ import annotations

import array
import contextlib
import errno
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

START, SIGNAL, RELEASE, PING = "start", "signal", "release", "ping"  # requests: (kind, id, ...)
# Events: (kind, id, ...), many in a list.
STARTED, REFUSED, ENDED, PONG = "started", "refused", "ended", "pong"
CLOSED = "closed"  # an argument: become not dumpable, like the server
LENGTH = struct.Struct("=I")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

_DESCRIPTORS_MAX = 3  # START carries those for stdout and stderr, and perhaps one for stdin
_UMASK = 0o077
_PR_SET_DUMPABLE = 4
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
# A command ignores no signal: neither those that Python ignores, such as SIGPIPE, nor those with
# which the server was started, as a shell does with SIGQUIT in the background.
_DEFAULT_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # so that the server can drain


def find_ticks() -> int | None:
    """Return the time since boot, in the ticks of the start times in /proc."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // TICK_NS


class SpawnerProcess:
    """The running commands, and the socket to the server."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._hangup = select.poll()  # tells that the server is gone
        self._hangup.register(server, select.POLLHUP)
        self._home = os.open(".", os.O_RDONLY)
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._pids: dict[int, int] = {}  # by the command's id
        self._ids: dict[int, int] = {}  # by pid; not yet ended
        self._signalled: set[int] = set()
        self._events: list[tuple[Any, ...]] = []

    def run(self) -> None:
        """Handle the server's requests until it closes the socket."""
        wakeup_read, wakeup_write = socket.socketpair()
        wakeup_read.setblocking(False)
        wakeup_write.setblocking(False)
        signal.set_wakeup_fd(wakeup_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_IGNORED_SIGNALS):
            signal.signal(number, lambda *_: None)
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        poll.register(wakeup_read, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wakeup_read.fileno():
                    with contextlib.suppress(BlockingIOError):
                        wakeup_read.recv(4_096)
                    self._collect()
                elif not self._handle_request():
                    signal.set_wakeup_fd(-1)  # commands may end after the sockets are closed
                    return
            if self._events:
                data = marshal.dumps(self._events)
                self._server.sendall(LENGTH.pack(len(data)) + data)
                self._events.clear()

    def _handle_request(self) -> bool:
        """Handle one request; return False when the server has closed the socket."""
        room = socket.CMSG_SPACE(_DESCRIPTORS_MAX * array.array("i").itemsize)
        head, ancillary, flags, _ = self._server.recvmsg(LENGTH.size, room, _CLOSE_ON_EXEC)
        if not head:
            return False
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data)
        (length,) = LENGTH.unpack(head)
        body = self._server.recv(length, socket.MSG_WAITALL)
        while len(body) < length:  # a signal has interrupted the call
            body += self._server.recv(length - len(body), socket.MSG_WAITALL)
        kind, number, *rest = marshal.loads(body)
        if kind == START:
            self._start(number, descriptors, bool(flags & socket.MSG_CTRUNC), *rest)
        elif kind == PING:
            self._events.append((PONG, number))
        elif number not in self._pids:  # it has ended and is reaped
            pass
        elif kind == SIGNAL:
            self._signal(number, *rest)
        else:
            self._release(number)
        return True

    def _start(
        self,
        number: int,
        descriptors: array.array[int],
        are_cut: bool,
        argv: list[str],
        env: dict[str, str],
        cwd: str | None,
    ) -> None:
        try:
            if self._hangup.poll(0):  # another server may have started the job by now
                return
            if are_cut:  # this process has no free descriptors for all that were sent
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = self._spawn(descriptors, argv, env, cwd)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None)
            text = getattr(error, "strerror", None) or str(error)
            self._events.append((REFUSED, number, code, text, getattr(error, "filename", None)))
        else:
            self._pids[number] = pid
            self._ids[pid] = number
            self._events.append((STARTED, number, pid, find_ticks()))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _spawn(
        self,
        descriptors: array.array[int],
        argv: list[str],
        env: dict[str, str],
        cwd: str | None,
    ) -> int:
        stdout, stderr, *rest = descriptors
        inherited = (rest[0] if rest else self._null, stdout, stderr)
        actions = [(os.POSIX_SPAWN_DUP2, each, to) for to, each in enumerate(inherited)]
        if cwd is not None:
            os.chdir(cwd)
        try:
            first_error: OSError | None = None
            for program in _list_programs(argv[0], env):
                try:
                    return os.posix_spawn(
                        program,
                        argv,
                        env,
                        file_actions=actions,
                        setsid=True,
                        setsigdef=_DEFAULT_SIGNALS,
                    )
                except OSError as error:
                    error.filename = None  # the server reads a name here as that of the directory
                    if first_error is None or first_error.errno in (errno.ENOENT, errno.ENOTDIR):
                        first_error = error
            raise first_error or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        finally:
            if cwd is not None:
                os.fchdir(self._home)

    def _signal(self, number: int, signal_number: int) -> None:
        self._signalled.add(number)
        # ProcessLookupError, or PermissionError when all that is left of the group runs as another
        # user.
        with contextlib.suppress(OSError):
            os.killpg(self._pids[number], signal_number)

    def _release(self, number: int) -> None:
        if self._pids[number] not in self._ids:  # it has ended
            os.waitpid(self._pids.pop(number), 0)
        self._signalled.discard(number)

    def _collect(self) -> None:
        """Report ended commands: all at once, or one by one while some must not be reaped."""
        if self._signalled:
            for pid, number in list(self._ids.items()):
                self._collect_one(pid, number)
            return
        while self._ids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            self._end(pid, os.waitstatus_to_exitcode(status))

    def _collect_one(self, pid: int, number: int) -> None:
        if number not in self._signalled:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._end(pid, os.waitstatus_to_exitcode(status))
        elif exit_info := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            is_exit = exit_info.si_code == os.CLD_EXITED
            self._end(pid, exit_info.si_status if is_exit else -exit_info.si_status)

    def _end(self, pid: int, status: int) -> None:
        number = self._ids.pop(pid)
        if number not in self._signalled:
            del self._pids[number]
        self._events.append((ENDED, number, status))


def _list_programs(name: str, env: dict[str, str]) -> list[str]:
    if "/" in name:
        return [name]
    return [os.path.join(directory, name) for directory in os.get_exec_path(env)]


def _close_process() -> None:
    """Keep commands from attaching to this process, which holds the pipes of other commands."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> None:
    """Serve the socket that the server has passed."""
    if sys.argv[2:] == [CLOSED]:
        _close_process()
    with socket.socket(fileno=int(sys.argv[1])) as server:
        server.set_inheritable(False)
        os.umask(_UMASK)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(ConnectionError):
            SpawnerProcess(server).run()


if __name__ == "__main__":
    main()
