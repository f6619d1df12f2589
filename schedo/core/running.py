"""The running attempts: their leases, stop requests and timeouts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from schedo.core.commit_queue import CommitQueue
from schedo.core.expectation_table import Expectations
from schedo.core.job_table import JobTable
from schedo.core.leases import AttemptResult, Lease, StopReason, StopRequest
from schedo.core.model import Job, LeaseKey, Location, Trigger
from schedo.core.requirements import ResourceAmounts
from schedo.core.states import State
from schedo.core.timers import Timers
from schedo.core.worker_messages import Run
from schedo.core.worker_pool import Worker, WorkerPool

_RUNNING, _INVOKE = State.RUNNING, Trigger.INVOKE
_WITH_WORKER = Location.RUNNING
# The same as LeaseKey(...) in half of the time.
_new_key: Callable[[tuple[int, int, int]], LeaseKey] = partial(tuple.__new__, LeaseKey)


class RunningAttempts:
    """Running attempts by job id; one job has at most one."""

    def __init__(
        self, jobs: JobTable, workers: WorkerPool, expectations: Expectations, epoch: int
    ) -> None:
        self._jobs = jobs
        self._workers, self._find_worker = workers, workers.find
        self._expectations = expectations
        self._epoch = epoch
        self._deadlines = Timers()
        self._stopping: dict[int, StopReason] = {}
        self._leases: list[Lease] = []  # to send now
        # To send when their start is durable: leases of jobs that run at most once, of jobs that
        # are made with their attempt, and of workers that require durable starts.
        self.deferred: CommitQueue[Lease] = CommitQueue()
        self.unsent: set[LeaseKey] = set()  # the live ones of these, and those that a gang keeps
        self._stops: list[StopRequest] = []  # to send now
        self.stops: CommitQueue[StopRequest] = CommitQueue()  # those that wait for a commit
        # Those of live attempts, noted before they are applied: a recovery must apply them again.
        self.results: list[AttemptResult] = []

    def start(self, job: Job, worker: Worker, now: int) -> None:
        """Start the next attempt of the job on the worker, with a new lease."""
        self._jobs.move(job, _RUNNING)
        job.attempt += 1
        job.epoch = self._epoch
        job.worker = worker_id = worker.spec.id
        job.picked_at = job.started_at = now
        job.due_elapsed = False
        key = _new_key((job.id, job.attempt, job.epoch))
        amounts = () if job.options.requirements is None else _amounts(job)
        worker.hold(key, amounts, is_suspect=job.poison_suspect)
        self._hold(job, now)
        lease = make_lease(key, worker_id, job)
        if job.options.at_most_once or job.trigger is _INVOKE or worker.spec.durable_starts:
            self.deferred.add(lease)
            self.unsent.add(key)
            worker.in_poll.add(key)  # until a response carries it, which ends the poll
        else:
            self._leases.append(lease)

    def resume(self, job: Job, lease: Lease, since: int, now: int) -> None:
        """Restore an attempt that a worker still runs. Its row can be older than the start.

        since: the instant from which its timeout counts. If it has passed, the worker gets a stop
        request, perhaps once more.
        """
        if job.state is not State.RUNNING:
            if job.is_final:
                reset_budget(job)  # an ended job can only run again after a manual retry
            if job.state is not State.QUEUED:
                self._jobs.move(job, State.QUEUED)
            self._jobs.move(job, State.RUNNING)
        if job.attempt < lease.key.attempt:  # the row is of an earlier attempt, or of none
            job.picked_at = job.started_at = since
            job.failures = lease.failures  # else the job would get more attempts than it may have
        job.due_elapsed = False
        job.attempt, job.epoch, job.worker = lease.key.attempt, lease.key.epoch, lease.worker
        self._jobs.mark_dirty(job)
        self._workers.hold(lease.worker, lease.key, _amounts(job))
        self._hold(job, since)
        if job.cancel_requested_at is not None:
            self._stops.append(self._note_stop(job, StopReason.CANCEL))
        elif job.options.timeout_us is not None and since + job.options.timeout_us <= now:
            self._deadlines.cancel(job.id)  # noted now: the next thing may be its result
            self._stops.append(self._note_stop(job, StopReason.TIMEOUT))

    def stop(self, job: Job, reason: StopReason) -> None:
        """Request the worker to stop the attempt. If it is repeated, the first reason stays.

        The request waits until the cancel, or the start from which the timeout counts, is durable:
        a remote worker outlives this server, and would have ended the attempt for a reason that
        the next server does not know. A timeout of an attempt that ends with this server is
        certain at once, and a slow disk does not delay it.
        """
        request = self._note_stop(job, reason)
        if self._jobs.is_uncommitted(job.id) and (
            reason is StopReason.CANCEL or self._workers.outlives_server(request.worker)
        ):
            self.stops.add(request)
        else:
            self._stops.append(request)

    def _note_stop(self, job: Job, reason: StopReason) -> StopRequest:
        assert job.worker is not None, "a running job has a worker"
        self._stopping.setdefault(job.id, reason)
        return StopRequest(job.key, job.worker, reason)

    def transfer(self, key: LeaseKey, worker_id: str) -> None:
        """Record another worker for a running attempt, for the server that opens the store next."""
        job = self._jobs.find(key.job_id)
        assert job is not None, "a running job is in memory"
        job.worker = worker_id
        self._jobs.mark_dirty(job)

    def is_live(self, key: LeaseKey) -> bool:
        """Return whether the lease is the current one of its job."""
        job = self._jobs.find(key.job_id)
        return job is not None and is_current_lease(key, job)

    def runs(self, job_id: int) -> bool:
        """Return whether an attempt of the job runs."""
        job = self._jobs.find(job_id)
        return job is not None and job.state is _RUNNING

    def stop_reason(self, job_id: int) -> StopReason | None:
        """Return the reason of the stop request that the job's worker has got, or None."""
        reason = self._stopping.get(job_id)
        if any(stop.key.job_id == job_id and stop.reason is reason for stop in self.stops):
            return None
        return reason

    def end(self, job: Job, key: LeaseKey) -> StopReason | None:
        """Free the slot and the timeout of an ended attempt; return its stop reason or None."""
        self._jobs.ready_queues.ended(job.queue)
        worker = self._find_worker(job.worker or "")
        if worker is not None:
            worker.release(key)
        if job.options.timeout_us is not None:
            self._deadlines.cancel(job.id)
        if job.schedule_id is not None:
            self._expectations.run_stopped(job)
        if self.unsent:
            self.unsent.discard(key)
        return self._stopping.pop(job.id, None) if self._stopping else None

    def stop_overdue(self, now: int, limit: int) -> None:
        """Request the workers to stop the attempts whose timeout has passed."""
        for _, job_id in self._deadlines.pop_due(now, limit):
            job = self._jobs.find(job_id)
            assert job is not None, "a running job is in memory"
            self.stop(job, StopReason.TIMEOUT)

    def next_timeout_at(self) -> int | None:
        """Return the next timeout, or None."""
        first = self._deadlines.first()
        return first[0] if first is not None else None

    def shift_deadlines(self, delta_us: int) -> None:
        """Shift the timeouts after a clock change, because they count elapsed time."""
        self._deadlines.shift(delta_us)

    def list_runs(self, worker: Worker, limit: int) -> list[Run]:
        """Return the jobs that the worker runs, those that it has longest first, up to `limit`."""
        jobs = (self._jobs.find(key.job_id) for key in islice(worker.running, limit))
        return [Run(job.id, job.task, job.started_at or 0) for job in jobs if job is not None]

    # Commits.

    def begin_commit(self) -> None:
        """Note that the leases and the stop requests that wait are being committed."""
        self.deferred.begin_commit()
        self.stops.begin_commit()

    def committed(self) -> None:
        """Note that what was being committed is durable."""
        self.deferred.committed()
        self.stops.committed()

    @property
    def needs_commit(self) -> bool:
        """Whether a lease or a stop request waits for the next commit."""
        return bool(self.deferred.new or self.stops.new)

    @property
    def has_durable(self) -> bool:
        """Whether a lease or a stop request that waited for its commit can be sent."""
        return bool(self.deferred.durable or self.stops.durable)

    # Leases, from their start to the worker.

    def take_durable(self) -> list[Lease]:
        """Return the live leases that had to wait until their start was durable."""
        return [lease for lease in self.deferred.take() if self.is_live(lease.key)]

    def send(self, lease: Lease) -> None:
        """Send a lease that had to wait, and the stop request that it has got meanwhile."""
        self._leases.append(lease)
        reason = self.stop_reason(lease.key.job_id)
        if reason is not None:
            self._stops.append(StopRequest(lease.key, lease.worker, reason))

    def unsent_of(self, worker_id: str) -> list[LeaseKey]:
        """Return the leases of the worker that wait for a commit or for their gang."""
        jobs = ((key, self._jobs.find(key.job_id)) for key in sorted(self.unsent))
        return [key for key, job in jobs if job is not None and job.worker == worker_id]

    def take_leases(self) -> list[Lease]:
        """Return the leases to send now."""
        leases, self._leases = self._leases, []
        if self.unsent:
            self.unsent.difference_update([lease.key for lease in leases])
        return leases

    # Results.

    def take_results(self) -> list[AttemptResult]:
        """Return the results of live attempts that were applied since the last call."""
        results, self.results = self.results, []
        return results

    def take_stops(self) -> list[StopRequest]:
        """Return the requests to stop running attempts that may be sent now."""
        stops, self._stops = self._stops, []
        return stops + [stop for stop in self.stops.take() if self.is_live(stop.key)]

    def _hold(self, job: Job, since: int) -> None:
        job.location = _WITH_WORKER
        self._jobs.ready_queues.queue_state(job.queue).running += 1
        if job.options.timeout_us is not None:
            self._deadlines.arm(job.id, since + job.options.timeout_us)
        if job.schedule_id is not None:
            self._expectations.run_started(job)


def make_lease(key: LeaseKey, worker_id: str, job: Job) -> Lease:
    options = job.options
    return Lease(
        key,
        worker_id,
        job.task,
        job.queue,
        job.payload,
        options,
        job.due_at if job.scheduled_for is None else job.scheduled_for,
        job.trigger,
        job.missed_count,
        job.poison_suspect,
        job.failures,
        1 if options.retry is None else options.retry.max_attempts,
        job.started_at or 0,
    )


def _amounts(job: Job) -> ResourceAmounts:
    requirements = job.options.requirements
    return requirements.resources if requirements is not None else ()


def is_current_lease(key: LeaseKey, job: Job) -> bool:
    """Return whether the lease is the current one of the job."""
    return job.location is _WITH_WORKER and job.attempt == key.attempt and job.epoch == key.epoch


def reset_budget(job: Job) -> None:
    """Reset an ended job: no failures, losses, result, cancel request or expiry."""
    job.failures = job.losses = 0
    job.ended_at = job.cancel_requested_at = job.expires_at = job.kept_until = None
    job.result = job.failure = None
