"""The right to be the one server of a database: an flock on a file beside it.

The kernel lets go of it the moment the holder dies, so there is nothing to clean up, and a file
that was left behind means nothing. It is never deleted: a lock on a deleted file would lock out
nobody.
"""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import UTC, datetime

from schedo.errors import StoreError, StoreLocked


class FileLock:
    """Held from `acquire` to `release`, by this process only."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock at once or raise StoreLocked, which names the holder."""
        assert self._descriptor is None, "the lock is held already"
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"cannot open the lock file {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sign(descriptor)
        except BlockingIOError:
            holder = os.pread(descriptor, 1_000, 0).decode(errors="replace").strip()
            os.close(descriptor)
            held = self._path.removesuffix(".lock")
            raise StoreLocked(
                f"another server holds {held}: {holder or 'it has not signed the lock yet'}"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go of the lock; harmless if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _sign(descriptor: int) -> None:
    # The file's own time says since when, so nothing here reads a clock.
    os.ftruncate(descriptor, 0)
    os.utime(descriptor)
    since = datetime.fromtimestamp(int(os.fstat(descriptor).st_mtime), UTC).isoformat()
    text = f"pid {os.getpid()} on {socket.gethostname()} since {since}\n"
    os.pwrite(descriptor, text.encode(), 0)
