"""The wait for the locks of a database that another server holds (see lock.py).

The waiting thread sleeps in the kernel, which gives it the lock of the lock file when the holder
ends, however it ends. Only then does it open the database, whose own lock may follow a moment
later: the kernel releases the locks of a dead process one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
import time
from typing import NamedTuple

from schedo.errors import StoreUnsuitable
from schedo.store.sqlite.path_checks import prepare_directory


class HeldLocks(NamedTuple):
    """The descriptors that hold the locks; database: None if that file does not exist."""

    lock: int
    database: int | None
    has_waited: bool  # another server held the store
    held_at: float  # time.monotonic() when the last of them was held

    def release(self) -> None:
        """Close the descriptors, which releases the locks."""
        os.close(self.lock)
        if self.database is not None:
            os.close(self.database)


async def wait_for_locks(path: str) -> HeldLocks:
    """Return the locks of the database, once this process has both; the caller owns them.

    Raise StoreUnsuitable if the files cannot be opened. After a cancellation, the thread goes on
    waiting, and releases at once what it gets.
    """
    prepare_directory(path)
    loop = asyncio.get_running_loop()
    found: asyncio.Future[HeldLocks] = loop.create_future()

    def deliver(held: HeldLocks | Exception) -> None:
        if isinstance(held, HeldLocks):
            if found.done():
                held.release()
            else:
                found.set_result(held)
        elif not found.done():
            found.set_exception(held)

    def wait() -> None:
        held: HeldLocks | Exception
        try:
            held = _take_locks(path)
        except Exception as error:
            held = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(deliver, held)

    # A daemon thread, because nothing can interrupt it, and the process must be able to end.
    threading.Thread(target=wait, name="schedo lock", daemon=True).start()
    return await found


def take_free_locks(path: str) -> HeldLocks | None:
    """Return the locks of the database if no other process holds one of them, or None."""
    try:
        return _take_locks(path, waits=False)
    except BlockingIOError:
        return None


def _take_locks(path: str, *, waits: bool = True) -> HeldLocks:
    lock, has_waited = _lock_named(path + ".lock", os.O_CREAT, waits=waits)
    if lock is None:  # it would be created in a directory that exists
        raise StoreUnsuitable(
            f"the directory {os.path.dirname(path)} was removed or moved away; a server that starts"
            " makes a new and empty store there: restore the directory first"
        )
    try:
        database, _ = _lock_named(path, 0, waits=waits)
    except BaseException:
        os.close(lock)
        raise
    return HeldLocks(lock, database, has_waited, time.monotonic())


def _lock_named(path: str, flags: int, *, waits: bool) -> tuple[int | None, bool]:
    """Lock the file that has this name now; return its descriptor, and whether that took a wait.

    waits: wait for the lock; else raise BlockingIOError if another process holds it.
    """
    has_waited = False
    while True:
        descriptor = _open(path, flags)
        if descriptor is None:
            return None, has_waited
        try:
            has_waited |= _lock(descriptor, waits=waits)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor, has_waited
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced during the wait: the lock is on the new file


def _open(path: str, flags: int) -> int | None:
    flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnsuitable(f"cannot open {path}: {error.strerror}") from error


def _lock(descriptor: int, *, waits: bool) -> bool:
    """Lock the file; return whether another process held its lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not waits:
            raise
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    return False
