"""Writes a file under a temporary name and gives it its own name when it is complete."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

from schedo.cli.errors import Failure

# With one of these beside it, a file is a store that a server uses or has used.
_STORE_SUFFIXES = ("-wal", "-shm", ".lock", ".last-commit")
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def new_file(path: Path, *, is_replacing: bool) -> Iterator[Path]:
    """Yield the path of a file to write; afterwards it is on the disk under its own name.

    Only this user can read it. An existing file is kept unless is_replacing; a store always is.
    After an error there is nothing, nor after a signal that ends the process.
    """
    if any(os.path.lexists(f"{path}{suffix}") for suffix in _STORE_SUFFIXES):
        raise Failure(f"{path} is the store of a server; choose another name")
    if os.path.lexists(path) and not is_replacing:
        raise Failure(f"{path} exists; --force replaces it")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with _removed_by_signals(temporary):
            yield temporary
            _place(temporary, path, is_replacing=is_replacing)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


@contextlib.contextmanager
def _removed_by_signals(path: Path) -> Iterator[None]:
    """Remove the file when a service or a session ends, whose signals raise nothing in Python."""

    def end(number: int, _: object) -> None:
        with contextlib.suppress(OSError):
            os.remove(path)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    ending = [each for each in _ENDING if signal.getsignal(each) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _place(temporary: Path, path: Path, *, is_replacing: bool) -> None:
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    if is_replacing:
        os.replace(temporary, path)
    else:
        try:
            os.link(temporary, path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            raise Failure(f"{path} exists; --force replaces it") from None
        os.remove(temporary)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
