"""The recovery of running attempts: a new scheduler keeps those that a worker may still run.

The other attempts were lost with the previous server. Their jobs are not to blame, with one
exception: an attempt that ran in the server's own process may have killed it.
"""

from __future__ import annotations

from schedo.core.commands import AttachWorker, CloseWorker
from schedo.core.leases import Blame, Lease, Lost, Released
from schedo.core.loads import LoadJob
from schedo.core.model import Job, LeaseKey
from schedo.core.running import make_lease
from schedo.core.scheduler import Scheduler
from schedo.core.worker_status import EMBEDDED_ALONE, kind
from schedo.engine.dispatch import Dispatcher
from schedo.store.base import RUNNING_PAGE, Snapshot, Store


def restore(scheduler: Scheduler, snapshot: Snapshot, dispatcher: Dispatcher, now: int) -> None:
    """Give the new scheduler what it needs of the store and the workers before its first turn."""
    scheduler.restore(
        snapshot.queues,
        snapshot.ready_keys,
        snapshot.has_blocked,
        snapshot.pauses,
        snapshot.cordons,
        snapshot.bulk_operations,
        snapshot.expectations,
    )
    for worker in dispatcher.workers.values():
        scheduler.apply(AttachWorker(worker.spec), now)
        if not worker.is_open:
            scheduler.apply(CloseWorker(worker.spec.id), now)
    dispatcher.recover(scheduler)


class Reconciliation:
    """Compares the running attempts of the store with the dispatched leases, for one recovery."""

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        scheduler: Scheduler,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._scheduler = scheduler
        self._lost: list[Job] = []

    async def run(self, snapshot: Snapshot, now: int) -> None:
        """Recover every job that runs according to the store or to the dispatched leases."""
        self._clock = snapshot.clock
        leases = self._dispatcher.latest()
        page = snapshot.running
        if page is None:
            page = await self._store.load_running(0, RUNNING_PAGE)
        while page:
            for job in page:
                self._recover_job(job, leases.pop(job.id, None), now)
            is_last = len(page) < RUNNING_PAGE
            page = [] if is_last else await self._store.load_running(page[-1].id, RUNNING_PAGE)
        for lease in leases.values():  # dispatched, but the store has not recorded the start
            stored = await self._store.load(LoadJob(lease.key.job_id))
            is_ours = stored is not None and not stored.is_final  # no other server has ended it
            if is_ours and _is_newer(lease.key, stored.key):
                self._recover_job(stored, lease, now)
            else:  # perhaps its result is durable already
                self._dispatcher.give_up(lease)
        self._end_lost(now, was_killed=snapshot.was_killed)

    def _recover_job(self, job: Job, lease: Lease | None, now: int) -> None:
        """Recover an attempt that a worker holds; end one that no worker holds."""
        if lease is not None and _is_newer(job.key, lease.key):
            self._dispatcher.give_up(lease)  # another server has started the job again meanwhile
            lease = None
        if lease is None:
            lease = self._expect(job, now)
        if lease is not None:
            self._scheduler.recover_running(job, lease, self.comparable(lease.started_at, now), now)
        elif job.key in self._dispatcher.waiting:
            self._scheduler.recover_lost(job, Released(), now)
        else:
            self._lost.append(job)

    def comparable(self, at: int, now: int) -> int:
        """Return an instant of the past, or `now` if the clock was set since.

        Then the two are not comparable: a timeout that counts from a start begins again, so that it
        is not too short.
        """
        is_comparable = at - self._clock.offset_us >= self._clock.set_at
        return min(at, now) if is_comparable else now

    def _end_lost(self, now: int, *, was_killed: bool) -> None:
        """End the attempts that were lost with the server; blame those that may have killed it."""
        here = {job.id for job in self._lost if kind(job.worker or "") == "embedded"}
        # Earlier suspects weigh more than the jobs that ran beside them. Otherwise a job that kills
        # its process would never be found in a process that always runs other jobs too.
        before = {job.id for job in self._lost if job.worker == EMBEDDED_ALONE}
        for job in self._lost:
            blame = Blame.NONE
            if was_killed and job.id in here:
                blame = Blame.SOLE if (before or here) == {job.id} else Blame.SHARED
                job.poison_suspect = job.id in before
            self._scheduler.recover_lost(job, Lost("the server that ran it is gone", blame), now)

    def _expect(self, job: Job, now: int) -> Lease | None:
        """Return the lease if a worker of the previous server may reconnect and still hold it."""
        if (
            job.worker is None
            or job.key in self._dispatcher.waiting
            or kind(job.worker) != "remote"
        ):
            return None
        lease = make_lease(job.key, job.worker, job)
        self._scheduler.expect_worker(lease, now)
        self._dispatcher.expect(lease)
        return lease


def _is_newer(key: LeaseKey, other: LeaseKey) -> bool:
    """Return whether an attempt began after the other one of the same job.

    If a server lost a job before its starts were durable, the numbers of its attempts may be above
    that of the attempt by the next server.
    """
    return (key.epoch, key.attempt) > (other.epoch, other.attempt)
