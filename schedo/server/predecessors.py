"""The old processes that end their attempts as workers of this server.

A remote worker that falls silent is lost after its session timeout. An old process runs on the same
machine, so the kernel says at once when it has died (pidfd_open(2)). Its attempts are lost then.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial

from schedo.engine.workers import Workers

log = logging.getLogger("schedo")

# For the results that the process had sent when it died, and this server has not read.
SETTLE_S = 0.1


def name_of(pid: int) -> str:
    """Return the name of an old process as a worker, by its number in its own container."""
    return f"handover-{pid}"


class Predecessors:
    """The old processes of which this server has heard, until they have ended."""

    def __init__(self, workers: Workers, reap: Callable[[], None]) -> None:
        """reap: kills the commands that dead old processes have left."""
        self._workers = workers
        self._reap = reap
        self._watched: dict[int, int] = {}  # the pidfd by the number in this container
        self._names: dict[int, str] = {}  # of those whose attempts may go on, by the same number

    @property
    def known(self) -> dict[str, int]:
        """The numbers of the processes whose attempts may go on, by name, for the next server.

        It may hear nothing from one of them, which dies before it connects.
        """
        return {name: seen_pid for seen_pid, name in self._names.items()}

    def watch(self, seen_pid: int, name: str) -> None:
        """Notice the death of an old process.

        seen_pid: the number of the process in this container, 0 if it has none; then only the
        session timeout shows its death. name: its name as a worker. It has only one: what it says
        last counts, so no process can hold many descriptors of this server.
        """
        if seen_pid <= 0:
            return
        self._forget(seen_pid)
        try:
            descriptor = os.pidfd_open(seen_pid)
        except ProcessLookupError:
            self._note_end(seen_pid, name)
            return
        except OSError as error:
            log.warning("the death of %s would be noticed late: %s", name, error)
            return
        # If another process has the number by now, the old one has died, and loses nothing here.
        self._watched[seen_pid], self._names[seen_pid] = descriptor, name
        ended = partial(self._note_end, seen_pid, name)
        asyncio.get_running_loop().add_reader(descriptor, ended)

    def close(self) -> None:
        """Watch no more."""
        for seen_pid in list(self._watched):
            self._forget(seen_pid)

    def _forget(self, seen_pid: int) -> None:
        descriptor = self._watched.pop(seen_pid, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _note_end(self, seen_pid: int, name: str) -> None:
        self._forget(seen_pid)
        asyncio.get_running_loop().call_later(SETTLE_S, self._end_attempts, seen_pid, name)

    def _end_attempts(self, seen_pid: int, name: str) -> None:
        """End the attempts that the process has left; their commands go first, they run again."""
        if self._names.get(seen_pid) == name:
            del self._names[seen_pid]
        held = len(self._workers.held_by(name))
        if not held:
            return
        self._reap()
        log.warning("worker %s is lost with %d attempts: its process has died", name, held)
        self._workers.lose(name, f"worker {name} is lost: its process has died")
