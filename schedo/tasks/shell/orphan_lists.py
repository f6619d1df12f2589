"""Commands that a killed worker left running: killed by the next worker of the same user.

Each worker keeps a list of its commands in a file of its own, and a lock beside it that the system
releases when the process ends, however it ends. A list whose lock is free is a dead worker's.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from schedo.tasks.shell.orphans import Orphans

log = logging.getLogger("schedo.worker")


class OrphanList:
    """The lists in a directory; `orphans` is this worker's own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        count = sum(_reap(lock) for lock in sorted(directory.glob("*.lock")))
        if count:
            log.warning("ended %d commands that a killed worker left running", count)
        self._lock = directory / f"{os.getpid()}-{secrets.token_hex(4)}.lock"
        self._descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self.orphans = Orphans(_find_list(self._lock))

    def close(self) -> None:
        """Leave nothing to find: this worker's commands have ended."""
        self.orphans.close()
        _find_list(self._lock).unlink(missing_ok=True)
        self._lock.unlink(missing_ok=True)
        os.close(self._descriptor)


def find_directory(environ: Mapping[str, str]) -> Path:
    """Return where the lists lie, by the rules for a program's state."""
    home = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home, "schedo", "workers")


def _find_list(lock: Path) -> Path:
    return lock.with_suffix(".children")


def _reap(lock: Path) -> int:
    """Kill what is on the list of a worker that is dead; return how many."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # another worker was faster
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        orphans = Orphans(_find_list(lock))
        count = orphans.reap()
        orphans.close()
        _find_list(lock).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            lock.unlink()
        return count
    except OSError:  # its worker lives
        return 0
    finally:
        os.close(descriptor)
