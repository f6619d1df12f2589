"""The record of running commands, by which the next server kills those that outlive this one.

A small file beside the store has lines for each command that starts and a line for each that ends.
It is never synced: it has to survive the server's death, not the machine's. A pid alone does not
identify a process. So the next server kills a process only if it started before the instant at
which the recorded process was seen alive (two processes cannot have had the pid by then), or if it
has the attempt's mark in its environment. The mark also finds descendants that left the group
(setsid). Both checks need Linux's /proc; elsewhere only marks are recorded.

A process that passes its store on goes on with its commands beside the new server. So it renames
its file, and locks it: the next server kills these commands only when the old process has died.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import signal
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MARK = "SCHEDO_MARK"
_FILE_BYTES_MAX = 65_536  # a larger file is rewritten with the commands that still run
_START_TIME_FIELD = 19  # after the ")" of /proc/<pid>/stat, see proc_pid_stat(5)
_KILL_ROUNDS_MAX = 5

logger = logging.getLogger(__name__)


class Leader(NamedTuple):
    """The first process of a command; the pid alone may belong to another process by now."""

    pid: int
    seen_at: int  # when it was alive, in ticks since boot


class Orphans:
    """The file of running commands; only the server that holds the store's lock writes it."""

    def __init__(self, path: Path) -> None:
        self._path = self._name = path
        self._descriptor: int | None = None
        self._bytes = 0
        self._bytes_max = _FILE_BYTES_MAX
        self._running: dict[str, Leader | None] = {}
        self._has_failed = False

    def announce(self, mark: str) -> None:
        """Record that a command with this mark is about to start."""
        self._running[mark] = None
        self._append(_render_line(mark, None))

    def record(self, mark: str, leader: Leader) -> None:
        """Record the process that was started for the mark."""
        self._running[mark] = leader
        self._append(_render_line(mark, leader))

    def forget(self, mark: str) -> None:
        """Record that the command has ended; its background processes may live on."""
        if mark in self._running:
            del self._running[mark]
            self._append(f"- {mark}\n")

    def reap(self) -> int:
        """Kill the commands of an earlier server, empty the file, return how many were killed."""
        count = self.reap_left()
        try:
            count += _kill_listed(self._name)
        except FileNotFoundError:
            return count
        self._rewrite()
        return count

    def has_left(self) -> bool:
        """Whether there are lists of old processes, which may live."""
        return next(self._find_left(), None) is not None

    def _find_left(self) -> Iterator[Path]:
        return self._name.parent.glob(self._name.name + ".[0-9]*")

    def reap_left(self) -> int:
        """Kill the commands of old processes that died before their commands ended; count them."""
        count = 0
        for path in self._find_left():
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                count += _kill_listed(path)
                path.unlink()
        return count

    # The commands of a process that another one replaces.

    def leave(self) -> None:
        """Keep the file under a name of this process's own: the next server makes another one.

        A process in another container may have the same number, so that is not the whole name.
        If the file has been removed, it is written anew. Raise OSError, and change nothing, if it
        cannot be renamed: the next server would kill the commands.
        """
        own = f"{os.getpid()}-{secrets.token_hex(4)}"
        path = self._name.with_name(f"{self._name.name}.{own}")
        is_missing = False
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                os.replace(self._name, path)
            except FileNotFoundError:
                is_missing = True
        self._path = path
        if is_missing:
            self._write_anew()

    def come_back(self) -> None:
        """Use the ordinary name again; the server that was to follow is dead, and its commands."""
        if not self._has_left:  # the file of that name is this process's own
            return
        with contextlib.suppress(OSError):
            _kill_listed(self._name)
        left, self._path = self._path, self._name
        if self._descriptor is None:
            return
        try:
            os.replace(left, self._name)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError:
            self._write_anew()
            with contextlib.suppress(OSError):
                left.unlink()

    @property
    def _has_left(self) -> bool:
        return self._path != self._name

    def close(self) -> None:
        """Close the file, but keep it for the next server, unless that has one of its own."""
        if self._descriptor is not None:
            if self._has_left:
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, line: str) -> None:
        try:
            if self._descriptor is None or self._bytes > self._bytes_max:
                self._rewrite()
            else:
                self._bytes += os.write(self._descriptor, line.encode())
        except OSError as error:
            self._warn(error)

    def _write_anew(self) -> None:
        try:
            self._rewrite()
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        # A full disk must not stop commands; then a crash may leave some of them running.
        if not self._has_failed:
            logger.warning(
                "cannot write the list of running commands (%s); "
                "commands may keep running if this server crashes",
                error,
            )
        self._has_failed = True

    def _rewrite(self) -> None:
        lines = [f"boot {_boot_id()}\n"]
        lines += [_render_line(mark, leader) for mark, leader in self._running.items()]
        data = "".join(lines).encode()
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(fresh, flags, 0o600)
        try:
            if self._has_left:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._bytes = os.write(descriptor, data)
            self._bytes_max = max(_FILE_BYTES_MAX, 2 * self._bytes)
            os.replace(fresh, self._path)
        except OSError:
            os.close(descriptor)
            raise
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = descriptor


def _kill_listed(path: Path) -> int:
    """Kill the commands that the file lists; raise FileNotFoundError."""
    boot, orphans = _parse(path.read_text(encoding="ascii", errors="replace"))
    return len(kill_left(orphans)) if orphans and boot == _boot_id() else 0


def find_start_time(pid: int) -> int | None:
    """Return when the process started, in ticks since boot, or None if it is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[_START_TIME_FIELD])


def kill_left(orphans: Mapping[str, Leader | None]) -> set[int]:
    """Kill the processes with these marks and the groups of their leaders; return the pids."""
    killed = {leader.pid for leader in orphans.values() if leader and _kill_group(leader)}
    return killed | kill_marked(orphans)


def kill_marked(marks: Collection[str]) -> set[int]:
    """Kill every process with one of the marks in its environment; return their pids."""
    variables = {f"{MARK}={mark}".encode() for mark in marks}
    killed: set[int] = set()
    for _ in range(_KILL_ROUNDS_MAX):  # a process forked during one round is found in the next
        found = {pid for pid in _list_pids() if _kill_if_marked(pid, variables)}
        if found <= killed:
            break
        killed |= found
    return killed


def _kill_group(leader: Leader) -> bool:
    start_time = find_start_time(leader.pid)
    if start_time is None or start_time > leader.seen_at:
        return False
    with contextlib.suppress(OSError):
        os.killpg(leader.pid, signal.SIGKILL)
        return True
    return False


def _kill_if_marked(pid: int, variables: set[bytes]) -> bool:
    # The pidfd is opened before the environment is read, so the killed process is the one that was
    # checked, even if the pid is reused.
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            if variables.isdisjoint(file.readall().split(b"\0")):
                return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:  # it has ended meanwhile, or belongs to another user
        return False
    finally:
        os.close(descriptor)
    return True


def _list_pids() -> list[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    me = os.getpid()
    return [int(name) for name in names if name.isdigit() and int(name) != me]


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _render_line(mark: str, leader: Leader | None) -> str:
    return f"+ {mark} {leader.pid} {leader.seen_at}\n" if leader else f"+ {mark}\n"


def _parse(text: str) -> tuple[str | None, dict[str, Leader | None]]:
    boot: str | None = None
    orphans: dict[str, Leader | None] = {}
    for line in text.splitlines():
        match line.split():
            case ["boot", value]:
                boot = value
            case ["+", mark]:
                orphans[mark] = None
            case ["+", mark, pid, seen_at] if pid.isdecimal() and seen_at.isdecimal():
                orphans[mark] = Leader(int(pid), int(seen_at))
            case ["-", mark]:
                orphans.pop(mark, None)
    return boot, orphans
