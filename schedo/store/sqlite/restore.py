"""A restore: a backup is put in place of a store; the next server on it begins paused."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime

from schedo.errors import StoreDamaged, StoreUnsuitable
from schedo.store.sqlite.check import check_store
from schedo.store.sqlite.connection import store_error
from schedo.store.sqlite.last_commit import SUFFIX
from schedo.store.sqlite.lock import FileLock, hold_database
from schedo.store.sqlite.path_checks import prepare_directory

_MADE = ("", "-wal", SUFFIX)  # the files of a store that a restore keeps aside
_UNFINISHED_SUFFIX = ".restore-in-progress"


def restore_store(backup: str, target: str, now: int, *, is_replacing: bool) -> list[str]:
    """Put the backup in place of the store at `target`; return the names of the files it kept.

    now: the present instant in microseconds. is_replacing: keep the files of an existing store
    aside instead of raising StoreUnsuitable. Raises StoreLocked if a server holds the store, and
    StoreDamaged if the backup is damaged. After an error nothing has changed.
    """
    backup, target = os.path.realpath(backup), os.path.realpath(target)
    report = check_store(backup)
    if report.problems:
        raise StoreDamaged(f"{backup} is not a whole store: {'; '.join(report.problems)}")
    if "backed_up_at" not in report.facts:
        raise StoreUnsuitable(
            f"{backup} is a store, not a backup of one; `schedo backup --store` makes a backup"
        )
    prepare_directory(target)
    lock = FileLock(target + ".lock")
    lock.acquire()
    held: int | None = None
    try:
        held = hold_database(target, create=False)
        kept = _replace(backup, target, now, is_replacing=is_replacing)
        lock.clear()  # the next server does not follow the one that held the old store
        return kept
    except (sqlite3.Error, OSError) as error:
        raise store_error(error, target) from error
    finally:
        if held is not None:
            os.close(held)
        lock.release()


def _replace(backup: str, target: str, now: int, *, is_replacing: bool) -> list[str]:
    there = [target + suffix for suffix in _MADE if os.path.lexists(target + suffix)]
    if there and not is_replacing:
        raise StoreUnsuitable(
            f"there is a store already: {', '.join(there)}; --force keeps it aside"
        )
    unfinished = target + _UNFINISHED_SUFFIX
    try:
        _copy(backup, unfinished)
        _sync(unfinished)
        # After a kill in between, no server starts: beside a missing database, or another one, the
        # last-commit file says that there was a store.
        kept = _keep_aside(target, now, ("", "-wal"))
        os.rename(unfinished, target)
        kept += _keep_aside(target, now, (SUFFIX,))
        _sync(os.path.dirname(target), os.O_DIRECTORY)
    finally:
        for suffix in ("", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(unfinished + suffix)
    return kept


def _copy(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(target)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as new, open(source, "rb") as file:
        shutil.copyfileobj(file, new, 1 << 20)


def _keep_aside(target: str, now: int, suffixes: Iterable[str]) -> list[str]:
    """Rename these files of the store; return their new names."""
    stamp = datetime.fromtimestamp(now // 1_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = []
    for suffix in suffixes:
        if os.path.lexists(target + suffix):
            aside = f"{target}.replaced-{stamp}{suffix}"
            if os.path.lexists(aside):
                raise StoreUnsuitable(f"{aside} exists; try again in a second")
            os.rename(target + suffix, aside)
            kept.append(aside)
    with contextlib.suppress(FileNotFoundError):
        os.remove(target + "-shm")
    return kept


def _sync(path: str, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
