"""Which attempts a new scheduler goes on with: those that a worker was given and may still run.

The others were lost with the last server. That says nothing about their jobs, with one exception:
an attempt that ran in the server's own process may have killed it.
"""

from __future__ import annotations

from collections.abc import Callable

from schedo.core.leases import Blame, Lease, Lost, Released
from schedo.core.model import Job
from schedo.core.running import make_lease
from schedo.core.scheduler import Scheduler
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.dispatch import Dispatcher, Transport
from schedo.engine.worker_session import EMBEDDED_ALONE, kind
from schedo.store.base import Store

RUNNING_PAGE = 1_000

ExpectWorker = Callable[[Lease], tuple[WorkerSpec, Transport] | None]


class Reconciliation:
    """One recovery's look at what runs."""

    def __init__(
        self, store: Store, handouts: Dispatcher, scheduler: Scheduler, expect_worker: ExpectWorker
    ) -> None:
        self._store = store
        self._handouts = handouts
        self._scheduler = scheduler
        self._expect_worker = expect_worker
        self._lost: list[Job] = []

    async def run(self, now: int, *, was_killed: bool) -> None:
        """Take in every job that runs, by the store or by what was handed out."""
        leases = self._handouts.latest()
        after = 0
        while page := await self._store.load_running(after, RUNNING_PAGE):
            after = page[-1].id
            for job in page:
                self._take(job, leases.pop(job.id, None), now)
        for lease in leases.values():  # handed out, but the store does not say that it runs
            stored = await self._store.load_job(lease.key.job_id)
            if stored is not None and stored.attempt < lease.key.attempt:
                self._take(stored, lease, now)
            else:
                self._handouts.forget([lease.key])  # its end is durable already
        self._end_lost(now, was_killed=was_killed)

    def _take(self, job: Job, lease: Lease | None, now: int) -> None:
        """Take in an attempt that a worker was given, or end one that nobody has."""
        if lease is None:
            lease = self._expect(job)
        if lease is not None and lease.key.attempt >= job.attempt:
            self._scheduler.recover_running(job, lease, now)
        elif self._handouts.is_waiting(job.key):
            self._scheduler.recover_lost(job, Released(), now)
        else:
            self._lost.append(job)

    def _end_lost(self, now: int, *, was_killed: bool) -> None:
        """End what was lost with the last server, and say who may have killed it."""
        here = {job.id for job in self._lost if kind(job.worker or "") == "embedded"}
        # What was suspected before weighs more than what ran beside it: else a job that kills its
        # program would never be found where others always run.
        before = {job.id for job in self._lost if job.worker == EMBEDDED_ALONE}
        for job in self._lost:
            blame = Blame.NONE
            if was_killed and job.id in here:
                blame = Blame.SOLE if (before or here) == {job.id} else Blame.SHARED
                job.poison_suspect = job.id in before
            self._scheduler.recover_lost(job, Lost("the server was restarted", blame), now)

    def _expect(self, job: Job) -> Lease | None:
        """Return the lease of a worker that the last server had, and may come back with it."""
        if job.worker is None or self._handouts.is_waiting(job.key):
            return None
        lease = make_lease(job.key, job.worker, job)
        known = self._expect_worker(lease)
        if known is None:
            return None
        if job.worker not in self._scheduler.workers:
            self._handouts.workers[job.worker] = known
            self._scheduler.attach(known[0])
        self._handouts.expect(lease)
        return lease
