"""A backup: the store at one instant as one whole file, copied while a server commits or not.

The copy runs on a connection and in a thread of its own, inside one read transaction. So no commit
of the server makes it begin again, and it waits for none. It has every commit that was durable when
it began, also those that are still in the write buffer. SQLite's log cannot start over meanwhile,
so it grows by what is committed during the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    cancelled, target = threading.Event(), source + UNFINISHED_SUFFIX

    def work() -> tuple[BinaryIO, int]:
        with contextlib.suppress(FileNotFoundError):
            os.remove(target)
        instant = write_backup(source, target, now, cancelled.is_set)
        file = open(target, "rb", buffering=0)  # noqa: SIM115  # the caller closes it
        os.remove(target)
        return file, instant

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
    try:
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnsuitable(f"cannot write {target}: {error.strerror}") from error
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
    finally:
        os.close(descriptor)
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
