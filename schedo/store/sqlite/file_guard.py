"""The guard of a database file: no commit is lost unnoticed, from the open to after the close.

- The lock allows one server for each file, whatever name the file has (store/sqlite/lock.py).
- The last-commit file makes a start fail if commits of the previous server are missing
  (store/sqlite/last_commit.py, store/sqlite/startup_checks.py).
- The file watch notices files that are moved, removed, replaced or truncated under the server
  (store/sqlite/file_watch.py).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable

from schedo.descriptors import duplicate_above
from schedo.store.sqlite import startup_checks
from schedo.store.sqlite.connection import last_commit, transaction
from schedo.store.sqlite.copy_marks import begin_anew, mark_closed, mark_open, renew_identity
from schedo.store.sqlite.file_watch import Files
from schedo.store.sqlite.last_commit import SUFFIX, CommitMark, LastCommitFile, read_mark
from schedo.store.sqlite.lock import FileLock, check_same, hold_database
from schedo.store.sqlite.path_checks import prepare_directory

log = logging.getLogger("schedo.store")

_STORE = "SELECT value FROM meta WHERE name = 'store'"


class DatabaseGuard:
    """The guard of a database in memory: no other program can reach it, and nothing outlives it."""

    was_killed = False  # the previous server, and its host still runs
    was_open = False  # the previous server did not copy its log: it was killed, or passed the store

    # Before SQLite opens the file.

    def prepare(self) -> None:
        """Create the directory, or raise StoreUnsuitable; `take` need not do that again."""

    def take(self) -> None:
        """Lock the database and create the file if it is new; raise StoreDamaged for a damage."""

    # While SQLite has the file open. All of this runs in the writer's thread.

    def attach(self, connection: sqlite3.Connection) -> None:
        """Mark the store as open. One that lost commits, or a backup, gets a new identity.

        Needs a transaction.
        """

    def begin(self, connection: sqlite3.Connection) -> None:
        """Note the identity of the database and of its files, which SQLite has just opened."""

    def committed(self, connection: sqlite3.Connection) -> int:
        """Note a synced commit and return the size of the log.

        Raise StoreBroken if the commit may be in files that were moved or removed.
        """
        return 0

    def log_bytes(self) -> int:
        """Return the size of the log; any thread may call."""
        return 0

    def copy_log(
        self, connection: sqlite3.Connection, copy: Callable[[sqlite3.Connection], bool]
    ) -> None:
        """Copy the log into the database; `copy` returns whether all of it was copied."""

    def check_index(self) -> None:
        """Raise StoreBroken if SQLite could not use the index of the log; any thread may call."""

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise StoreBroken unless every file is the one that SQLite opened."""

    def recovered(self, connection: sqlite3.Connection) -> None:
        """Make the recovery after the previous server durable, and count this one as the holder."""

    def note_leaving(self) -> None:
        """Count the end of this server as an orderly one from now on, even if it is killed."""

    def detach(self, connection: sqlite3.Connection) -> None:
        """Mark the store as closed, before the log is copied for the last time."""

    # After SQLite has closed the file.

    def end(self, *, keep_lock: bool = False) -> None:
        """Close the files and release the lock; harmless if nothing is held.

        keep_lock: the lock stays, and the end of this server counts as an orderly one.
        """

    # The passing of the lock between two processes.

    def lock_descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that hold the locks on the lock file and on the database."""
        return ()

    def inherit(self, lock: int, database: int | None) -> None:
        """Own these descriptors, which hold the locks; `take` checks them."""
        raise NotImplementedError("a database in memory has no lock")


class FileGuard(DatabaseGuard):
    """The guard of the database at one path; `accept_loss`: start although commits are missing."""

    def __init__(self, path: str, *, accept_loss: bool) -> None:
        self._path = path
        self._accept_loss = accept_loss
        self.lock = FileLock(path + ".lock")
        self._database: int | None = None
        self._is_prepared = False
        self._last_commit_file = LastCommitFile(path)
        self._files = Files(path)
        self._accepted: startup_checks.Damage | None = None
        self._mark = CommitMark()
        self._is_attached = False
        self._kept: list[int] = []  # descriptors of files that SQLite may have open

    def prepare(self) -> None:
        prepare_directory(self._path)
        self._is_prepared = True

    def take(self) -> None:
        if not self._is_prepared:
            prepare_directory(self._path)
        self._accepted = None
        self.lock.acquire()
        self.was_killed = self.lock.was_killed
        if self._database is None:
            self._database = hold_database(self._path, create=False)
        else:
            database, self._database = self._database, None
            check_same(database, self._path)
            self._database = database
        mark = read_mark(self._path)
        damage = startup_checks.find_damage(self._path, mark, self._read_start)
        if damage is not None:
            if not self._accept_loss:
                raise startup_checks.refuse(self._path, damage)
            self._accept(damage)
            mark = None
        if self._database is None:
            self._database = hold_database(self._path, create=True)
        assert self._database is not None, "it was created"
        above = duplicate_above(self._database)
        self._kept.append(self._database)
        self._database = above
        self._mark = mark or CommitMark()

    def _read_start(self, path: str, size: int) -> bytes | None:
        """Return the first bytes of a file; it stays open, because a close drops SQLite's locks."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        self._kept.append(descriptor)
        return os.pread(descriptor, size, 0)

    def _accept(self, damage: startup_checks.Damage) -> None:
        loss = startup_checks.describe_loss(self._path, damage)
        kept = startup_checks.set_aside(self._path, damage)
        where = f"; the old files are kept as {', '.join(kept)}" if kept else ""
        log.critical("the loss is accepted: %s%s", loss, where)
        self._accepted = damage
        if damage.is_unusable and self._database is not None:
            os.close(self._database)
            self._database = None

    def attach(self, connection: sqlite3.Connection) -> None:
        # The files with the lost commits do not belong to the store any more. And no new lease may
        # equal a lease of the lost commits, so the epoch skips all epochs that they can have had.
        if self._accepted is not None:
            renew_identity(connection, self._accepted.missing)
        begin_anew(connection)
        self.was_open = mark_open(connection)

    def begin(self, connection: sqlite3.Connection) -> None:
        (store,) = connection.execute(_STORE).fetchone()
        self._last_commit_file.open()
        self._files.begin(connection)
        self._is_attached = True
        if store != self._mark.store:  # a new identity must be durable before the file has it
            with transaction(connection):
                pass
            self._mark.store, self._mark.commits = store, last_commit(connection)
        # Else the number of the last commit stays: the file must never be ahead of what is synced.
        self._last_commit_file.write(self._mark)

    def committed(self, connection: sqlite3.Connection) -> int:
        log_bytes = self._files.check_names()
        self._check_mark()
        self._mark.commits = last_commit(connection)
        self._last_commit_file.write(self._mark)
        return log_bytes

    def copy_log(
        self, connection: sqlite3.Connection, copy: Callable[[sqlite3.Connection], bool]
    ) -> None:
        if not self._is_attached:
            return  # the file was refused and stays unchanged
        self._files.check()
        self._mark.is_copying = True
        self._last_commit_file.write(self._mark)
        try:
            is_whole = copy(connection)
        finally:
            self._files.copied()
        if is_whole:
            self._mark.commits = self._mark.copied = last_commit(connection)
            self._mark.is_copying = False
            self._last_commit_file.write(self._mark)

    def detach(self, connection: sqlite3.Connection) -> None:
        if self._is_attached:
            with transaction(connection):
                mark_closed(connection)
            self.committed(connection)

    def check_index(self) -> None:
        if self._is_attached:
            self._files.check_index()

    def check(self, connection: sqlite3.Connection) -> None:
        if self._is_attached:
            self._files.check()
            self._files.check_writers(connection)
            self._check_mark()

    def _check_mark(self) -> None:
        if not self._last_commit_file.is_intact():
            raise self._files.overwritten(SUFFIX)

    def recovered(self, connection: sqlite3.Connection) -> None:
        if self._mark.commits < last_commit(connection):
            with transaction(connection):
                pass  # its sync makes all earlier transactions durable, too
            self.committed(connection)
        self.lock.has_taken_over = True

    def note_leaving(self) -> None:
        self.lock.clear()

    def log_bytes(self) -> int:
        return startup_checks.size_of(self._path + "-wal")

    def lock_descriptors(self) -> tuple[int, ...]:
        lock, database = self.lock.descriptor, self._database
        assert lock is not None, "the lock is held"
        assert database is not None, "the lock is held"
        return lock, database

    def inherit(self, lock: int, database: int | None) -> None:
        self.lock.inherit(lock)
        self._database = database

    def end(self, *, keep_lock: bool = False) -> None:
        self._is_attached = False
        self._files.end()
        self._last_commit_file.close()
        while self._kept:
            os.close(self._kept.pop())
        if keep_lock:
            self.lock.leave()
            return
        if self._database is not None:
            os.close(self._database)
            self._database = None
        self.lock.release()
