"""Cordons: workers that get no new work, because an operator said so.

A cordon of a remote worker is durable: it belongs to the name, and stays when the worker or the
server starts again. One of the server's own workers ends with the server, and one that a drain has
set ends with the process that was drained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.job_table import JobTable
from schedo.core.worker_pool import Worker, WorkerPool, WorkerSpec, as_polling
from schedo.core.worker_session import SessionTable


class Cordons:
    """Keeps workers from new work."""

    def __init__(self, table: SessionTable, workers: WorkerPool, jobs: JobTable) -> None:
        self._table = table
        self._workers = workers
        self._jobs = jobs

    def restore(self, cordoned: Iterable[CordonedWorker]) -> None:
        """Restore the cordons of the store."""
        for each in cordoned:
            self._table.stored_cordons.add(each.name)
            self._workers.cordon(each.name, True)

    def list_absent(self) -> Iterator[Worker]:
        """Return the cordoned workers that have not connected since the server started."""
        for name in self._table.stored_cordons:
            worker = self.find_absent(name)
            if worker is not None:
                yield worker

    def find_absent(self, name: str) -> Worker | None:
        """Return the worker if it is cordoned and has not connected since the server started."""
        if name not in self._table.stored_cordons or name in self._table.by_name:
            return None
        worker = Worker(as_polling(WorkerSpec(name, 0, frozenset())))
        worker.is_cordoned = True
        return worker

    def cordon(self, name: str, now: int) -> None:
        """Keep the worker from new work until it is uncordoned."""
        stored = self._table.stored_cordons
        if name in self._table.by_name and name not in stored:
            stored.add(name)
            self._jobs.changes.cordons[name] = CordonedWorker(name, now)
        self._workers.cordon(name, True)

    def uncordon(self, name: str) -> None:
        """Allow the worker new work again, which also ends its drain."""
        stored, session = self._table.stored_cordons, self._table.by_name.get(name)
        if name in stored:
            stored.remove(name)
            self._jobs.changes.cordons[name] = None
        self._workers.cordon(name, False)
        if session is not None:
            session.drain_requested = False
