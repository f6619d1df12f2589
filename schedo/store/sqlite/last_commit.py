"""The last commit, written down beside the database: what shows that a part of the files is gone.

SQLite believes as much of its log as is whole, and an empty file is a new database to it. So when a
log is deleted, cut or damaged, or a file is replaced by an older copy, it opens what is left and
says nothing. The witness is a small file that repeats the number of the last commit. It is written
after the commit is on the disk and never synced itself: a killed process leaves it as it is, and
after a power cut it can only be behind the database, never ahead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from datetime import UTC, datetime
from typing import NamedTuple

from schedo.errors import StoreUnsuitable

log = logging.getLogger("schedo.store")

SUFFIX = ".last-commit"
_BYTES = 128  # fixed, so that it is written in one piece over itself
_UNSIGNED = 2**64 - 1


class Mark(NamedTuple):
    """What the witness says."""

    store: int  # names the store
    commits: int  # the number of the last commit that is on the disk
    copied: int  # this commit and all before it are in the database file, without the log
    is_copying: bool  # the log is being copied, so the database file alone is neither old nor new


class Witness:
    """The witness of a store that this process holds."""

    def __init__(self, path: str) -> None:
        self.path = path + SUFFIX
        self._descriptor: int | None = None
        self._is_well = True

    def open(self) -> None:
        """Make the file if it is not there."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise StoreUnsuitable(f"cannot open {self.path}: {error.strerror}") from error

    def write(self, mark: Mark) -> None:
        """Replace what the file says."""
        assert self._descriptor is not None, "the witness is open"
        try:
            os.pwrite(self._descriptor, _render(mark), 0)
        except OSError as error:
            # It is behind then, which is harmless: it proves less.
            if self._is_well:
                log.warning("the last commit cannot be noted in %s: %s", self.path, error.strerror)
            self._is_well = False

    def close(self) -> None:
        """Close the file; harmless if it is not open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_mark(path: str) -> Mark | None:
    """Return what the witness of the database says; None if there is none that can be read."""
    try:
        with open(path + SUFFIX, "rb") as file:
            text = file.read(_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnsuitable(f"cannot read {path + SUFFIX}: {error.strerror}") from error
    mark = _parse(text)
    if mark is None:
        # A power cut can leave it empty, and by itself it holds nothing that anybody needs.
        log.warning("%s cannot be read; whether a commit is missing is not known", path + SUFFIX)
    return mark


def last_written(path: str) -> str:
    """Return when the witness was written last, as text."""
    with contextlib.suppress(OSError):
        return datetime.fromtimestamp(int(os.stat(path + SUFFIX).st_mtime), UTC).isoformat()
    return "an unknown instant"


def _render(mark: Mark) -> bytes:
    state = "copying" if mark.is_copying else "whole"
    text = f"store {mark.store & _UNSIGNED:016x} commit {mark.commits} copied {mark.copied} {state}"
    return f"{text} {zlib.crc32(text.encode()):08x}".encode().ljust(_BYTES - 1) + b"\n"


def _parse(content: bytes) -> Mark | None:
    with contextlib.suppress(ValueError, IndexError):
        words = content.decode().split()
        store = int(words[1], 16)
        if store > _UNSIGNED // 2:
            store -= _UNSIGNED + 1
        mark = Mark(store, int(words[3]), int(words[5]), words[6] == "copying")
        if _render(mark) == content:
            return mark
    return None
