"""A backup: the store at one instant as one whole file, copied while a server commits or not.

The copy runs on a connection and in a thread of its own, inside one read transaction. So no commit
of the server makes it begin again, and it waits for none. It has every commit that was durable when
it began, also those that are still in the write buffer. SQLite's log cannot start over meanwhile,
so it grows by what is committed during the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import glob
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import BinaryIO

from schedo.errors import StoreFull, StoreUnsuitable
from schedo.store.sqlite.connection import go_last, open_reader, store_error
from schedo.store.sqlite.copy_marks import mark_backup
from schedo.store.sqlite.last_commit import read_mark
from schedo.store.sqlite.lock import FileLock
from schedo.store.sqlite.path_checks import size_bytes
from schedo.store.sqlite.startup_checks import find_damage, refuse

_STEP_PAGES = 256  # a MiB
# The copy is synced in parts: the sync of a commit would wait for a gigabyte of unwritten pages.
_SYNC_STEPS = 8
# A copy that leaves less room on the disk ends, because the server needs the room for its log.
FREE_BYTES_MIN = 64 * 1024 * 1024

# Beside the store, while a server writes a backup for a client; a killed server leaves it behind.
UNFINISHED_SUFFIX = ".backup-in-progress"


class Cancelled(Exception):
    """The caller does not want the backup any more."""


async def write_backup_behind(source: str, now: Callable[[], int]) -> tuple[BinaryIO, int]:
    """As write_backup, to a file without a name, in a thread that all others go before."""
    # Another process may write one, too: the next server of an upgrade, or the one before.
    cancelled, target = threading.Event(), f"{source}{UNFINISHED_SUFFIX}.{os.getpid()}"

    def work() -> tuple[BinaryIO, int]:
        descriptor = _create(target)
        try:
            instant = _write(source, target, descriptor, now, cancelled.is_set)
            os.remove(target)
            os.lseek(descriptor, 0, os.SEEK_SET)
            return os.fdopen(descriptor, "rb", buffering=0), instant
        except BaseException:
            os.close(descriptor)
            raise

    executor = ThreadPoolExecutor(1, "schedo backup", go_last)
    copying = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        return await asyncio.shield(copying)
    finally:
        cancelled.set()
        await asyncio.wait((copying,))
        executor.shutdown(wait=False)


def write_backup(
    source: str, target: str, now: Callable[[], int], is_cancelled: Callable[[], bool]
) -> int:
    """Copy the store at `source` to the new file `target`; return the instant that the copy shows.

    now: returns the present instant in microseconds. is_cancelled: checked between steps; then this
    raises Cancelled. Raises StoreError. After any error there is no file.
    """
    descriptor = _create(target)
    try:
        return _write(source, target, descriptor, now, is_cancelled)
    finally:
        os.close(descriptor)


def remove_unfinished(source: str) -> None:
    """Remove the files that servers have left behind which were killed during a backup."""
    for path in glob.iglob(glob.escape(source + UNFINISHED_SUFFIX) + "*"):
        if path.endswith("-journal"):
            continue
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unless it is still written
            os.remove(path)


def _create(target: str) -> int:
    """Create the file, which is locked as long as the descriptor is open."""
    try:
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnsuitable(f"cannot write {target}: {error.strerror}") from error
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _write(
    source: str,
    target: str,
    descriptor: int,
    now: Callable[[], int],
    is_cancelled: Callable[[], bool],
) -> int:
    try:
        _check_room(target, size_bytes(source))
        instant = _copy(source, target, descriptor, now, is_cancelled)
        _complete(target, instant)
        os.fsync(descriptor)
    except BaseException as error:
        for suffix in ("", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(target + suffix)
        if isinstance(error, sqlite3.Error | OSError):
            raise store_error(error, target) from error
        raise
    return instant


def back_up_stopped(source: str, target: str, now: Callable[[], int]) -> int:
    """As write_backup, of a store without a server: none can start meanwhile."""
    source = os.path.realpath(source)
    if not os.path.isfile(source):
        raise StoreUnsuitable(f"there is no store at {source}")
    lock = FileLock(source + ".lock")
    lock.acquire()
    try:
        damage = find_damage(source, read_mark(source))
        if damage is not None:
            raise refuse(source, damage)
        return write_backup(source, target, now, lambda: False)
    finally:
        lock.release()


def _copy(
    source: str,
    target: str,
    descriptor: int,
    now: Callable[[], int],
    is_cancelled: Callable[[], bool],
) -> int:
    steps = 0

    def note_step(status: int, remaining: int, total: int) -> None:
        nonlocal steps
        steps += 1
        if is_cancelled():
            raise Cancelled
        if steps % _SYNC_STEPS == 0:
            os.fdatasync(descriptor)
            _check_room(target, 0)

    with closing(open_reader(source)) as reader, closing(sqlite3.connect(target)) as copy:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1024"):
            copy.execute(f"PRAGMA {pragma}")
        instant = now()
        reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM sqlite_schema").fetchone()  # the transaction begins here
        reader.backup(copy, pages=_STEP_PAGES, progress=note_step)
    return instant


def _complete(target: str, instant: int) -> None:
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")  # so that reading it makes no other files
        copy.execute("BEGIN")
        mark_backup(copy, instant)
        copy.execute("COMMIT")


def _check_room(target: str, needed: int) -> None:
    found = os.statvfs(os.path.dirname(target) or ".")
    free = found.f_bavail * found.f_frsize
    if free < needed + FREE_BYTES_MIN:
        raise StoreFull(
            f"there is no room for {target}: {free} bytes are free, and a backup needs"
            f" {needed + FREE_BYTES_MIN}"
        )
