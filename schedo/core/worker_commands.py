"""The commands on workers, whatever their connection, and the status of workers."""

from __future__ import annotations

from itertools import chain, islice

from schedo.core.commands import (
    AttachWorker,
    CloseWorker,
    Cordon,
    DetachWorker,
    Drain,
    TransferAttempts,
)
from schedo.core.cordons import Cordons
from schedo.core.held_leases import IN_FLIGHT_US
from schedo.core.leases import AttemptResult, Lease, Lost, Released
from schedo.core.loads import Appliers, Loaded
from schedo.core.results import Results
from schedo.core.running import RunningAttempts
from schedo.core.worker_messages import WorkerStatus
from schedo.core.worker_pool import Worker, WorkerPool
from schedo.core.worker_session import Session, SessionTable
from schedo.core.worker_sessions import WorkerSessions
from schedo.core.worker_status import status
from schedo.errors import NotFound

WORKER_RUNS_MAX = 64  # how many of its running jobs a worker's status lists
RUNS_MAX = 1_024  # the same for all workers of a list


class WorkerCommands:
    """Attaches, detaches, cordons and drains workers."""

    def __init__(
        self,
        workers: WorkerPool,
        attempts: RunningAttempts,
        table: SessionTable,
        sessions: WorkerSessions,
        cordons: Cordons,
        results: Results,
    ) -> None:
        self._workers = workers
        self._attempts = attempts
        self._table = table
        self._sessions = sessions
        self._cordons = cordons
        self._results = results
        self.appliers: Appliers = {
            AttachWorker: self.attach,
            DetachWorker: self.detach,
            TransferAttempts: self.transfer,
            CloseWorker: self.close,
            Cordon: self.cordon,
            Drain: self.drain,
        }

    def attach(self, command: AttachWorker, now: int, loaded: Loaded) -> None:
        """Add the worker, or replace its spec."""
        self._workers.attach(command.spec)

    def detach(self, command: DetachWorker, now: int, loaded: Loaded) -> None:
        """Remove the worker; end the attempts that it still held."""
        if self._sessions.detach(command.worker, command.message, now):
            return
        unsent = self._attempts.unsent | command.unsent
        for key in self._workers.detach(command.worker):
            if self._attempts.is_live(key):  # not ended just now together with its gang
                outcome = Released() if key in unsent else Lost(command.message)
                self._results.apply(AttemptResult(key, outcome), now)

    def transfer(self, command: TransferAttempts, now: int, loaded: Loaded) -> None:
        """Record another worker for the attempts of the attached workers."""
        self._sessions.release_unsent(now)
        unsent = self._attempts.unsent | command.unsent
        for worker in list(self._workers):
            for key in list(worker.running):
                if not self._attempts.is_live(key):  # ended just now together with its gang
                    continue
                if key in unsent:
                    self._results.apply(AttemptResult(key, Released()), now)
                elif not worker.spec.polls:
                    self._attempts.transfer(key, command.worker)

    def close(self, command: CloseWorker, now: int, loaded: Loaded) -> None:
        """Assign no more attempts to the worker."""
        self._workers.close(command.worker)

    def cordon(self, command: Cordon, now: int, loaded: Loaded) -> WorkerStatus:
        """Stop assigning attempts to the worker, or resume; raise NotFound."""
        worker = self._find(command.worker)
        if command.is_cordoned:
            self._cordons.cordon(command.worker, now)
        else:
            self._cordons.uncordon(command.worker)
        # If the worker is not attached, this is only for the status.
        worker.is_cordoned = command.is_cordoned
        return self._status_of(worker, now)

    def drain(self, command: Drain, now: int, loaded: Loaded) -> WorkerStatus:
        """Request that the worker finishes its attempts and shuts down; raise NotFound."""
        self._find(command.worker)
        self._sessions.drain(command.worker, now)
        return self.status(command.worker, now)

    # Look-ups.

    def status(self, name: str, now: int) -> WorkerStatus:
        """Return the status of one worker; raise NotFound."""
        return self._status_of(self._find(name), now)

    def _status_of(self, worker: Worker, now: int) -> WorkerStatus:
        runs = self._attempts.list_runs(worker, WORKER_RUNS_MAX)
        return status(worker, self._table.by_name.get(worker.spec.id), now, runs)

    def statuses(
        self, now: int, limit: int | None = None, runs_max: int = RUNS_MAX
    ) -> list[WorkerStatus]:
        """Return the attached workers, then the disconnected ones that still have a session.

        At last come those that are cordoned and have not connected since the server has started.
        limit: how many at most; None: all. runs_max: how many of their running jobs at most.
        """
        left = runs_max
        sessions = self._table.by_name
        away = (Worker(each.spec) for name, each in sessions.items() if name not in self._workers)
        others = self._cordons.list_absent()
        found: list[WorkerStatus] = []
        for worker in islice(chain(self._workers, away, others), limit):
            runs = self._attempts.list_runs(worker, min(left, WORKER_RUNS_MAX))
            left -= len(runs)
            found.append(status(worker, sessions.get(worker.spec.id), now, runs))
        return found

    def held_by(self, name: str) -> list[Lease]:
        """Return the leases that the worker holds, or held when the previous server ended."""
        session = self._table.by_name.get(name)
        return [held.lease for held in session.held.values()] if session is not None else []

    def list_unheard(self, now: int) -> list[str]:
        """Return the workers that hold leases and have not said for IN_FLIGHT_US what they run.

        In a cluster they may poll another server, and may not have got these leases. A poll that
        this one sends in the name of a worker does not say what the worker runs.
        """
        return [
            name
            for name, session in self._table.by_name.items()
            if session.held
            and (session.spec.is_relayed or not session.polls)
            and _is_unheard(session, now)
        ]

    def _find(self, name: str) -> Worker:
        worker = self._workers.find(name)
        if worker is None and name in self._table.by_name:
            worker = Worker(self._table.by_name[name].spec)
        if worker is None:
            worker = self._cordons.find_absent(name)
        if worker is None:
            raise NotFound(f"there is no worker {name!r}")
        return worker


def _is_unheard(session: Session, now: int) -> bool:
    return session.listed_at is None or now - session.listed_at > IN_FLIGHT_US
