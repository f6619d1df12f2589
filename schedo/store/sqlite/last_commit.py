"""The last-commit file beside the database, which shows at a start that commits are missing.

SQLite uses the intact part of its log and takes an empty file for a new database. So when a log is
deleted, truncated or damaged, or a file is replaced by an older copy, SQLite opens the rest without
an error. The last-commit file is small and repeats the number of the last commit. It is written
after the commit is synced, and is never synced itself. A killed process leaves it complete, and
after a power cut it can only be behind the database, never ahead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime

from schedo.errors import StoreUnsuitable

log = logging.getLogger("schedo.store")

SUFFIX = ".last-commit"
_BYTES = 128  # a fixed size, so that one write replaces the content
_UNSIGNED = 2**64 - 1


@dataclass(slots=True)
class CommitMark:
    """The content of the last-commit file."""

    store: int = 0  # identifies the store
    commits: int = 0  # the number of the last synced commit
    copied: int = 0  # this commit and all earlier ones are in the database file, without the log
    is_copying: bool = False  # a checkpoint runs, so the database file alone is inconsistent


class LastCommitFile:
    """The last-commit file of a store that this process has locked."""

    def __init__(self, path: str) -> None:
        self.path = path + SUFFIX
        self._descriptor: int | None = None
        self._is_writable = True
        self._written = b""

    def open(self) -> None:
        """Open the file; create it if it does not exist."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise StoreUnsuitable(f"cannot open {self.path}: {error.strerror}") from error

    def is_intact(self) -> bool:
        """Return whether the file has the content that was written last."""
        assert self._descriptor is not None, "the last-commit file is open"
        if not self._is_writable:
            return True  # it keeps what was written before
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, _BYTES + 1, 0) == self._written
        return False

    def write(self, mark: CommitMark) -> None:
        """Replace the content of the file."""
        assert self._descriptor is not None, "the last-commit file is open"
        self._written = _render(mark)
        try:
            os.pwrite(self._descriptor, self._written, 0)
        except OSError as error:
            # A file that is behind is harmless: it only notices less.
            if self._is_writable:
                log.warning("cannot write the last commit to %s: %s", self.path, error.strerror)
            self._is_writable = False

    def close(self) -> None:
        """Close the file; harmless if it is not open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_mark(path: str) -> CommitMark | None:
    """Return the content of the last-commit file; None if the file is missing or unreadable."""
    try:
        with open(path + SUFFIX, "rb") as file:
            text = file.read(_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnsuitable(f"cannot read {path + SUFFIX}: {error.strerror}") from error
    mark = _parse(text)
    if mark is None:
        # A power cut can leave the file empty, and the server can do without it.
        log.warning("%s is unreadable; missing commits cannot be noticed", path + SUFFIX)
    return mark


def last_written(path: str) -> str:
    """Return when the last-commit file was written last, as text."""
    with contextlib.suppress(OSError):
        return datetime.fromtimestamp(int(os.stat(path + SUFFIX).st_mtime), UTC).isoformat()
    return "an unknown instant"


def _render(mark: CommitMark) -> bytes:
    state = b"copying" if mark.is_copying else b"whole"
    text = b"store %016x commit %d copied %d %s" % (
        *(mark.store & _UNSIGNED, mark.commits, mark.copied),
        state,
    )
    return (b"%s %08x" % (text, zlib.crc32(text))).ljust(_BYTES - 1) + b"\n"


def _parse(content: bytes) -> CommitMark | None:
    with contextlib.suppress(ValueError, IndexError):
        words = content.decode().split()
        store = int(words[1], 16)
        if store > _UNSIGNED // 2:
            store -= _UNSIGNED + 1
        mark = CommitMark(store, int(words[3]), int(words[5]), words[6] == "copying")
        if _render(mark) == content:
            return mark
    return None
