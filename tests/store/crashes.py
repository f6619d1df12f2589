"""The files of a store as a killed server leaves them, and starts with such files."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from schedo.core.model import Options
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import listed, put

SUFFIXES = ("", "-wal", ".lock", ".last-commit")


def copy(path: Path, to: Path, suffixes: tuple[str, ...] = SUFFIXES) -> Path:
    """Copy the files of a store, as a crash would leave them, to a directory of their own."""
    to.mkdir(mode=0o700, parents=True)
    for suffix in suffixes:
        shutil.copy(f"{path}{suffix}", f"{to / path.name}{suffix}")
    return to / path.name


def contents(path: Path) -> dict[str, bytes]:
    """Return the contents of the store's files, without the lock and the index of the log."""
    left_out = (".lock", "-shm")
    return {
        file.name: file.read_bytes()
        for file in path.parent.iterdir()
        if not file.name.endswith(left_out)
    }


async def opened(path: Path, *, accept_loss: bool = False) -> list[int]:
    """Start a server on the files; return the jobs that it finds."""
    store = SqliteStore(path, accept_loss=accept_loss)
    await store.open()
    try:
        return await listed(store, limit=10_000)
    finally:
        await store.close()


async def checkpointed(store: SqliteStore) -> None:
    """Copy the whole log into the database; the next commit begins the log anew.

    A checkpoint of the server does not wait for the store's own reads. While one of them runs, the
    log goes on, and then it still has the commits that a test wants to be missing.
    """
    assert store._writer is not None
    await store._writer.run(store._guard.copy_log, restart_log)


def restart_log(connection: sqlite3.Connection) -> bool:
    (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    assert not is_busy, "no read takes that long"
    return True


async def crashed(path: Path, tmp_path: Path, *, jobs: int = 12) -> Path:
    """Return the files of a killed server with `count` jobs, half of them only in the log."""
    store = SqliteStore(path)
    await store.open()
    for number in range(1, jobs + 1):
        # Every third one has a tag, so it is no entry of the write buffer.
        tags = ("a",) if number % 3 == 0 else ()
        await put(store, make_job(id=number, payload=b"x" * 300, options=Options(tags=tags)))
        if number == jobs // 2:
            await checkpointed(store)
    left = copy(path, tmp_path / "crashed")
    await store.close()
    return left


def content(file: Path) -> bytes:
    return file.read_bytes()


def lay(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        os.remove(f"{path}{suffix}")


def flip(file: Path, at: int) -> None:
    """Change one bit of the file."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def garble(file: Path) -> None:
    """Overwrite all of a database but its header; SQLite notices it when it reads a page."""
    with file.open("r+b") as opened:
        opened.seek(100)
        opened.write(b"\xa5" * (os.stat(file).st_size - 100))


def wal(path: Path) -> Path:
    return Path(f"{path}-wal")
