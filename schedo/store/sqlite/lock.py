"""The lock of a database: an flock on a lock file beside it, and one on the database itself.

The kernel releases both when the holder dies. So there is nothing to clean up, and a lock file that
is left behind blocks no server. The lock file is never deleted, because a lock on a deleted file
would exclude no server. The lock on the database also excludes a server that uses another name, a
hard link, or a new lock file after the old one was deleted.

The lock belongs to the open file description, so a server can pass it to its successor: both hold
it while both have the descriptors, and no third process gets between them (schedo/handover/).

The text in the lock file names the holder and the host's boot. An orderly shutdown clears it, so
the next server knows whether the previous one was killed. A server whose start is refused restores
the text that it found, for the next start. The text is never synced: after a crash of the host the
boot differs, whatever the text is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from datetime import UTC, datetime
from pathlib import Path

from schedo.descriptors import duplicate_above
from schedo.errors import StoreLocked, StoreUnsuitable

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FileLock:
    """Held from `acquire` to `release`, by this process only."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        # The previous holder did not clear the file, and the host still runs.
        self.was_killed = False
        self.has_taken_over = False  # the recovery after the previous holder is durable
        self._found: bytes | None = None  # the text before this holder's; None: not signed yet
        self._is_left = False  # the text belongs to the next holder

    @property
    def descriptor(self) -> int | None:
        """The descriptor that holds the lock, or None."""
        return self._descriptor

    def inherit(self, descriptor: int) -> None:
        """Own this descriptor, by which another process holds the lock; acquire() checks it."""
        assert self._descriptor is None, "the lock is held already"
        self._descriptor = descriptor

    def acquire(self) -> None:
        """Take the lock, or raise StoreLocked, which names the holder; never wait.

        A lock that is held already, or was inherited, is only signed again.
        """
        descriptor, self._descriptor = self._descriptor, None
        try:
            if descriptor is None:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            else:
                check_same(descriptor, self._path)
        except OSError as error:
            raise StoreUnsuitable(
                f"cannot open the lock file {self._path}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            boot = _read_boot()
            self._found = _read(descriptor)
            self.was_killed = f"boot {boot}" in _lines(self._found)
            self.has_taken_over = self._is_left = False
            _sign(descriptor, boot, len(self._found))
            self._descriptor = duplicate_above(descriptor)
        except BlockingIOError:
            holder = "".join(_lines(_read(descriptor))[:1])
            os.close(descriptor)
            held = self._path.removesuffix(".lock")
            raise StoreLocked(
                f"another server holds {held}: {holder or 'it has not signed the lock yet'}"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)

    def clear(self) -> None:
        """Clear the text: for the next holder, this one has shut down in order."""
        self._found = b""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)

    def leave(self) -> None:
        """Clear the text and leave it to the next holder; the lock stays until release()."""
        self.clear()
        self._is_left = True

    def release(self) -> None:
        """Release the lock after an orderly shutdown; harmless if it is not held."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a full disk is no reason to keep the lock
                if self._is_left or self._found is None:
                    pass
                elif self.has_taken_over:
                    self.clear()
                else:
                    os.ftruncate(self._descriptor, 0)
                    os.pwrite(self._descriptor, self._found, 0)
            os.close(self._descriptor)
            self._descriptor = None


def check_same(descriptor: int, path: str) -> None:
    """Close the descriptor and raise StoreUnsuitable unless it is of the file at the path."""
    try:
        is_same = os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        is_same = False
    if not is_same:
        os.close(descriptor)
        raise StoreUnsuitable(f"{path} is not the file that the other server has locked")


def read_holder(path: str) -> int | None:
    """Return the pid that the lock file names, as its own system counts it; None: no holder."""
    try:
        text = Path(path).read_bytes()[:1_000]
    except OSError:
        return None
    words = [line.split() for line in _lines(text)[:1]]
    match words:
        case [["pid", pid, *_]] if pid.isdecimal():
            return int(pid)
    return None


def find_living(path: str) -> int | None:
    """Return the pid that the lock file names if such a process runs since this boot, or None.

    It need not be the holder: the number may have been used again after a kill, or be one of
    another container.
    """
    pid = read_holder(path)
    try:
        if pid is None or f"boot {_read_boot()}".encode() not in Path(path).read_bytes()[:1_000]:
            return None
        os.kill(pid, 0)
    except PermissionError:
        return pid  # it runs, as another user
    except OSError:
        return None
    return pid


def _read(descriptor: int) -> bytes:
    return os.pread(descriptor, 1_000, 0)


def _lines(text: bytes) -> list[str]:
    return text.decode(errors="replace").splitlines()


def _read_boot() -> str:
    """Return the id of the host's present boot; outside Linux it is always the same."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def hold_database(path: str, *, create: bool) -> int | None:
    """Lock the database and return the descriptor; None if the file does not exist.

    The caller closes the descriptor after SQLite has closed the file, because the close drops all
    locks of this process on the file.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnsuitable(f"cannot open {path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreUnsuitable(f"{path} is not a file")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreLocked(
            f"another server holds {path}, by another name or with another lock file"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sign(descriptor: int, boot: str, size: int) -> None:
    """Replace the text of this size; a file is seldom truncated, which a file system logs."""
    os.utime(descriptor)  # the modification time of the file serves as the clock
    since = datetime.fromtimestamp(int(os.fstat(descriptor).st_mtime), UTC).isoformat()
    text = f"pid {os.getpid()} on {socket.gethostname()} since {since}\nboot {boot}\n".encode()
    os.pwrite(descriptor, text, 0)
    if size > len(text):
        os.ftruncate(descriptor, len(text))
