"""The lists of running commands of remote workers; the next worker kills those of a dead one.

Each worker keeps a list of its commands in a file of its own, and holds a lock file beside it that
the system releases when the process ends, however it ends. So a list whose lock is free belongs to
a dead worker, and its commands are orphans.
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
    """The lists in one directory; `orphans` is the list of this worker.

    Kills the orphans of dead workers when it is made.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        count = sum(_reap(lock) for lock in sorted(directory.glob("*.lock")))
        if count:
            log.warning("killed %d commands that a dead worker left running", count)
        self._lock = directory / f"{os.getpid()}-{secrets.token_hex(4)}.lock"
        self._descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self.orphans = Orphans(_find_list(self._lock))

    def close(self) -> None:
        """Remove this worker's list and lock, because all of its commands have ended."""
        self.orphans.close()
        _find_list(self._lock).unlink(missing_ok=True)
        self._lock.unlink(missing_ok=True)
        os.close(self._descriptor)


def find_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of the lists, by the XDG rules for a program's state."""
    home = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home, "schedo", "workers")


def _find_list(lock: Path) -> Path:
    return lock.with_suffix(".children")


def _reap(lock: Path) -> int:
    """Kill the commands on a dead worker's list; return how many were killed."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # another worker has reaped it meanwhile
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
    except OSError:  # its worker is alive and holds the lock
        return 0
    finally:
        os.close(descriptor)
