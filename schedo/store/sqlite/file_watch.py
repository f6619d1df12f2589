"""The watch over the files of a running store, which must stay those that SQLite opened.

SQLite keeps using its open files, even if they are renamed or deleted: commits to a deleted file
succeed and are lost with the process. So this module compares the names with the open files:

- the database and its log after each commit, before the commit is acknowledged;
- all files, and the log's content with its index, about twice a second, when it also asks SQLite
  for commits that this server has not made;
- the length of the log's index before each use.

It never opens a descriptor of the database, because a close would drop SQLite's locks on it. All of
this runs in the writer's thread, so no commit runs meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from typing import NamedTuple

from schedo.errors import StoreBroken
from schedo.store.sqlite import last_commit

_NAMES = {
    "": "the database",
    "-wal": "the log",
    "-shm": "the index of the log",
    ".lock": "the lock file",
    last_commit.SUFFIX: "the last-commit file",
}
_INDEX_BYTES = 48
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24


class _Index(NamedTuple):
    """The last commit of the log, as its index has it."""

    frames: int
    page_bytes: int
    checksum: bytes  # of the last frame
    salts: bytes


class _FileState(NamedTuple):
    """A file under a name: its identity, and its size and time after the last write."""

    device: int
    inode: int
    size: int
    written_at: int  # in nanoseconds


class Files:
    """The files of one open database."""

    def __init__(self, path: str) -> None:
        self._path, self._log_path = path, path + "-wal"
        self._opened: dict[str, _FileState] = {}
        self._identities: tuple[int, ...] = ()  # of the database and its log
        self._log = self._index = -1
        self._index_bytes = 0  # the index never shrinks while it is open
        self._checked = 0  # frames of the log that are checked already
        self._salts = b""
        self._data_version = 0

    def begin(self, connection: sqlite3.Connection) -> None:
        """Note the state of the files, which SQLite has just opened with the writing connection."""
        self._data_version = _data_version(connection)
        self._log = os.open(self._path + "-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._index = os.open(self._path + "-shm", os.O_RDONLY | os.O_CLOEXEC)
        self._index_bytes = os.fstat(self._index).st_size
        self._checked, self._salts = 0, b""
        self._opened = {suffix: self._stat(suffix) for suffix in _NAMES}
        self._identities = (*self._opened[""][:2], *self._opened["-wal"][:2])

    def end(self) -> None:
        """Close the descriptors; SQLite must have closed its own ones already."""
        for descriptor in (self._log, self._index):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._index = -1
        self._opened = {}

    def check_names(self) -> int:
        """Return the size of the log; raise StoreBroken if the database or its log was moved.

        This runs after each commit, when the sync has emptied the processor's caches: so it does
        little, and leaves it to _check to find out what is wrong.
        """
        with contextlib.suppress(OSError):
            database, log = os.stat(self._path), os.stat(self._log_path)
            found = (database.st_dev, database.st_ino, log.st_dev, log.st_ino)
            if found == self._identities and database.st_size >= self._opened[""].size:
                return log.st_size
        self._check("")
        return self._check("-wal").size

    def check_index(self) -> None:
        """Raise StoreBroken if the index of the log was truncated.

        SQLite maps it into memory, and an access beyond the end of the file kills the process with
        SIGBUS. So the file gets its old length, and SQLite finds zeros there when it closes.
        """
        size = os.fstat(self._index).st_size
        if size < self._index_bytes:
            with contextlib.suppress(OSError):
                os.truncate(f"/proc/self/fd/{self._index}", self._index_bytes)
            raise self._broken("-shm", "was truncated")
        self._index_bytes = size

    def check_writers(self, connection: sqlite3.Connection) -> None:
        """Raise StoreBroken if SQLite found a commit that the writing connection has not made.

        It finds one, too, if the index of the log was overwritten or put back to an earlier state.
        """
        if _data_version(connection) != self._data_version:
            raise self._broken(
                "", "was written by another program, or the index of its log was overwritten,"
            )

    def check(self) -> None:
        """Raise StoreBroken unless every file is in its place and the log is complete."""
        if not self._opened:
            return  # it is being closed
        self.check_index()
        for suffix in _NAMES:
            state = self._check(suffix)
            opened = self._opened[suffix]
            if not suffix and (state.size, state.written_at) != (opened.size, opened.written_at):
                raise self._broken(suffix, "was written by another program")
        try:
            self._check_log()
        except OSError as error:
            raise self._broken("-wal", f"cannot be read any more ({error.strerror})") from error

    def copied(self) -> None:
        """Note the state of the database after a checkpoint."""
        self._opened[""] = self._stat("")

    def _check(self, suffix: str) -> _FileState:
        try:
            state = self._stat(suffix)
        except FileNotFoundError:
            raise self._broken(suffix, "was removed or moved away") from None
        except OSError as error:
            raise self._broken(suffix, f"cannot be checked any more ({error.strerror})") from error
        if state[:2] != self._opened[suffix][:2]:
            raise self._broken(suffix, "was replaced")
        if not suffix and state.size < self._opened[suffix].size:
            raise self._broken(suffix, "was truncated")
        return state

    def _stat(self, suffix: str) -> _FileState:
        found = os.stat(self._path + suffix)
        return _FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def _check_log(self) -> None:
        """Compare the log with its index, frame by frame from the end of the last check."""
        index = _parse(os.pread(self._index, _INDEX_BYTES, 0))
        if index.frames == 0:
            self._checked = 0
            return
        header = os.pread(self._log, _LOG_HEADER_BYTES, 0)
        if header[16:24] != index.salts:
            raise self._broken("-wal", "was truncated or written by another program")
        if index.salts != self._salts or index.frames < self._checked:
            self._salts, self._checked = index.salts, 0
        step = index.page_bytes + _FRAME_HEADER_BYTES
        for number in range(max(self._checked - 1, 0), index.frames):
            at = _LOG_HEADER_BYTES + number * step
            frame = os.pread(self._log, _FRAME_HEADER_BYTES, at)
            if frame[8:16] != index.salts:
                raise self._broken("-wal", "was truncated or written by another program")
        end = _LOG_HEADER_BYTES + index.frames * step
        if frame[16:24] != index.checksum or os.fstat(self._log).st_size < end:
            raise self._broken("-wal", "was truncated or written by another program")
        self._checked = index.frames

    def overwritten(self, suffix: str) -> StoreBroken:
        """Return the error that the content of the file is not what the server wrote."""
        return self._broken(suffix, "was overwritten")

    def _broken(self, suffix: str, what: str) -> StoreBroken:
        lost = (
            ""
            if suffix in ("-shm", ".lock", last_commit.SUFFIX)
            else "; commits may be missing from it"
        )
        return StoreBroken(
            f"{_NAMES[suffix]} {self._path}{suffix} {what} while the server ran{lost};"
            " the server must stop"
        )


def _data_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def _parse(header: bytes) -> _Index:
    # WalIndexHdr of SQLite's wal.c: native byte order except for the salts. The log itself is in
    # network byte order.
    if len(header) < _INDEX_BYTES:
        return _Index(0, 0, b"", b"")
    (page_bytes,) = struct.unpack_from("=H", header, 14)
    (frames,) = struct.unpack_from("=I", header, 16)
    checksum = struct.pack(">2I", *struct.unpack_from("=2I", header, 24))
    return _Index(frames, 65_536 if page_bytes == 1 else page_bytes, checksum, header[32:40])
