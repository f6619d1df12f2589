"""What keeps a database from losing commits unnoticed, from before it is opened until it is closed.

- the lock: one server a file, by whatever name (store/sqlite/lock.py);
- the witness: a start with less than the last server had made durable is refused
  (store/sqlite/last_commit.py, store/sqlite/startup_checks.py);
- the watch: files that are moved, removed, replaced or cut off under the server are noticed
  (store/sqlite/file_watch.py).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable

from schedo.store.sqlite import startup_checks
from schedo.store.sqlite.connection import last_commit
from schedo.store.sqlite.file_watch import Files
from schedo.store.sqlite.last_commit import Mark, Witness, read_mark
from schedo.store.sqlite.lock import FileLock, hold_database

log = logging.getLogger("schedo.store")

_NEW_STORE = "UPDATE meta SET value = random() WHERE name = 'store'"
_SKIP_EPOCHS = "UPDATE meta SET value = value + ? WHERE name = 'epoch'"
_STORE = "SELECT value FROM meta WHERE name = 'store'"


class FileGuard:
    """The guard of the database at one path; `accept_loss`: start with what is left of it."""

    def __init__(self, path: str, *, accept_loss: bool) -> None:
        self._path = path
        self._accept_loss = accept_loss
        self.lock = FileLock(path + ".lock")
        self._database: int | None = None
        self._witness = Witness(path)
        self._files = Files(path)
        self._accepted: startup_checks.Damage | None = None
        self._mark = Mark(0, 0, 0, False)
        self._is_begun = False

    # Before SQLite has the file.

    def take(self) -> None:
        """Lock the database, and raise StoreDamaged if something of it is missing.

        Then the file is there; a new one is empty.
        """
        self._accepted = None
        self.lock.acquire()
        self._database = hold_database(self._path, create=False)
        mark = read_mark(self._path)
        damage = startup_checks.find_damage(self._path, mark)
        if damage is not None:
            if not self._accept_loss:
                raise startup_checks.refuse(self._path, damage)
            self._accept(damage)
            mark = None
        if self._database is None:
            self._database = hold_database(self._path, create=True)
        self._mark = mark or Mark(0, 0, 0, False)

    def _accept(self, damage: startup_checks.Damage) -> None:
        loss = startup_checks.describe_loss(self._path, damage)
        kept = startup_checks.set_aside(self._path, damage)
        where = f"; what was there is kept as {', '.join(kept)}" if kept else ""
        log.critical("the loss is accepted: %s%s", loss, where)
        self._accepted = damage
        if damage.is_unusable and self._database is not None:
            os.close(self._database)
            self._database = None

    # While SQLite has it. All of this runs in the writer's thread.

    def attach(self, connection: sqlite3.Connection) -> None:
        """Make another store of one that lost commits, inside a transaction.

        The files with the lost commits do not go with it any more; and no lease of now may have the
        name of one that the lost part gave out, so the epoch goes beyond all that it can have had.
        """
        if self._accepted is not None:
            connection.execute(_NEW_STORE)
            connection.execute(_SKIP_EPOCHS, (self._accepted.missing or 0,))

    def begin(self, connection: sqlite3.Connection) -> None:
        """Note what the database and its files are, just opened."""
        (store,) = connection.execute(_STORE).fetchone()
        self._witness.open()
        self._files.begin()
        self._is_begun = True
        self._write_mark(self._mark._replace(store=store, commits=last_commit(connection)))

    def committed(self, connection: sqlite3.Connection) -> int:
        """Note a commit that is on the disk; StoreBroken if it is in no file of ours.

        Returns the bytes of the log.
        """
        log_bytes = self._files.check_names()
        self._write_mark(self._mark._replace(commits=last_commit(connection)))
        return log_bytes

    def copy_log(
        self, connection: sqlite3.Connection, copy: Callable[[sqlite3.Connection], bool]
    ) -> None:
        """Let the log be copied into the database; `copy` tells whether that was all of it."""
        if not self._is_begun:
            return  # the file was refused, and is left as it is
        self._files.check()
        self._write_mark(self._mark._replace(is_copying=True))
        try:
            is_whole = copy(connection)
        finally:
            self._files.copied()
        if is_whole:
            number = last_commit(connection)
            self._write_mark(self._mark._replace(commits=number, copied=number, is_copying=False))

    def check_index(self) -> None:
        """Raise StoreBroken if SQLite could not use the index of the log; from any thread."""
        if self._is_begun:
            self._files.check_index()

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise StoreBroken unless every file is the one that was opened."""
        if self._is_begun:
            self._files.check()

    def _write_mark(self, mark: Mark) -> None:
        self._mark = mark
        self._witness.write(mark)

    # After SQLite has closed it.

    def end(self) -> None:
        """Let go of everything; harmless if nothing is held."""
        self._is_begun = False
        self._files.end()
        self._witness.close()
        if self._database is not None:
            os.close(self._database)
            self._database = None
        self.lock.release()
