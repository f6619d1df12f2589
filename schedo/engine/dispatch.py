"""The attempts that workers were given, until their end is durable.

The store learns of a start after the worker does, so a recovery needs this beside the store: which
leases are out, and which reports it may not have yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from schedo.core.leases import AttemptResult, Lease, Lost, Snoozed, StopRequest
from schedo.core.limits import SECOND
from schedo.core.model import LeaseKey, Trigger
from schedo.core.running import RunningAttempts
from schedo.core.value_limits import is_refused, refused
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError

log = logging.getLogger("schedo.engine")

PAYLOAD_PAUSE_US = SECOND


class Transport(Protocol):
    """The way to one worker; neither method blocks or raises."""

    def start(self, lease: Lease) -> None:
        """Let the worker run the attempt; the lease's payload is there."""

    def stop(self, stop: StopRequest) -> None:
        """Ask the worker to end the attempt."""


class Dispatcher:
    """The attached workers with the ways to them, and what each was given."""

    def __init__(
        self,
        load_payload: Callable[[int], Awaitable[bytes]],
        report: Callable[[AttemptResult], None],
    ) -> None:
        self._load_payload = load_payload
        self._report = report
        self._leases: dict[LeaseKey, Lease] = {}  # handed out, their end not yet durable
        self._results: dict[
            LeaseKey, AttemptResult
        ] = {}  # settled, not yet durable; also of the lost
        self._waiting: set[LeaseKey] = set()  # for a commit or a payload: no worker has them yet
        self._ended: list[LeaseKey] = []
        self._loading: set[asyncio.Task[None]] = set()
        self.workers: dict[str, tuple[WorkerSpec, Transport]] = {}
        # Handed out when durable: of jobs that run at most once or were made with their attempt,
        # and for workers that want it so.
        self.deferred: list[Lease] = []
        # Whether a lease is kept until others are ready; who keeps it calls start_late again.
        self.should_defer: Callable[[Lease], bool] = lambda lease: False

    # Out.

    def dispatch(self, leases: Iterable[Lease]) -> None:
        """Hand out what may run at once; the rest waits for its commit or for its payload."""
        for lease in leases:
            offer, transport = self.workers[lease.worker]
            if (
                lease.options.at_most_once
                or lease.trigger is Trigger.INVOKE
                or offer.durable_starts
            ):
                self._waiting.add(lease.key)
                self.deferred.append(lease)
            elif lease.payload is None:
                self._waiting.add(lease.key)
                self._load(lease)
            else:
                self._leases[lease.key] = lease
                transport.start(lease)

    def dispatch_deferred(self, lease: Lease) -> None:
        """Hand out a lease that had to wait; it may have been lost or stopped meanwhile."""
        known = self.workers.get(lease.worker)
        if known is None or not self._attempts.is_live(lease.key):
            self._waiting.discard(lease.key)
            return
        if lease.payload is None:
            self._load(lease)
            return
        if self.should_defer(lease):
            return
        self._waiting.discard(lease.key)
        self._leases[lease.key] = lease
        known[1].start(lease)
        reason = self._attempts.stop_reason(lease.key.job_id)
        if reason is not None:
            known[1].stop(StopRequest(lease.key, lease.worker, reason))

    def stop(self, stop: StopRequest) -> None:
        """Ask the worker to end the attempt, if it is still there."""
        known = self.workers.get(stop.worker)
        if known is not None:
            known[1].stop(stop)

    def _load(self, lease: Lease) -> None:
        task = asyncio.create_task(self._load_and_start(lease))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _load_and_start(self, lease: Lease) -> None:
        try:
            payload = await self._load_payload(lease.key.job_id)
        except SchedoError as error:
            log.error("the payload of a job could not be read: %s", error)
            self._report(AttemptResult(lease.key, Snoozed(PAYLOAD_PAUSE_US)))
        else:
            self.dispatch_deferred(replace(lease, payload=payload))

    # Back.

    def record_result(self, report: AttemptResult) -> None:
        """Remember how a live attempt ended until that is durable."""
        self._ended.append(report.key)
        self._results[report.key] = report

    def record_refusal(self, key: LeaseKey) -> None:
        """Forget with the next commit what was kept of an attempt that does not hold its job."""
        self._ended.append(key)

    def record_loss(self, key: LeaseKey, message: str) -> None:
        """Remember that an attempt went with its worker."""
        self._ended.append(key)
        if key in self._leases:
            self._results.setdefault(key, AttemptResult(key, Lost(message)))

    def take(self) -> tuple[list[Lease], list[LeaseKey]]:
        """Return what the next commit releases: leases to hand out, and attempts to forget."""
        taken = self.deferred, self._ended
        self.deferred, self._ended = [], []
        return taken

    def forget(self, keys: Iterable[LeaseKey]) -> None:
        """Forget attempts whose end is durable."""
        for key in keys:
            self._leases.pop(key, None)
            self._results.pop(key, None)
            if self._waiting:
                self._waiting.discard(key)

    # Recovery.

    def recover(self, attempts: RunningAttempts) -> None:
        """Go on with a new scheduler's attempts: what was to be handed out is not any more."""
        self._attempts = attempts
        self.deferred, self._ended = [], []
        for task in self._loading:
            task.cancel()

    def expect(self, lease: Lease) -> None:
        """Take an attempt of the last server's for handed out."""
        self._leases[lease.key] = lease

    def latest(self) -> dict[int, Lease]:
        """Return the last lease that was handed out of each job, by job id."""
        return {lease.key.job_id: lease for lease in self._leases.values()}

    def is_waiting(self, key: LeaseKey) -> bool:
        """Whether the attempt was decided on, but no worker was given it."""
        return key in self._waiting

    def results(self) -> list[AttemptResult]:
        """Return the reports to settle again."""
        return list(self._results.values())

    def refuse_reports(self, faults: Mapping[int, str]) -> bool:
        """Let the reports of these jobs, by id, count as failures, because the store took none of
        them; return whether there was one to refuse."""
        found = [
            report
            for report in self._results.values()
            if report.key.job_id in faults and not is_refused(report)
        ]
        for report in found:
            self._results[report.key] = refused(report, faults[report.key.job_id])
        return bool(found)

    def recovered(self) -> None:
        """Forget what waited: it is decided anew, and that is durable."""
        self._waiting.clear()

    async def close(self) -> None:
        """Wait for what still loads."""
        await asyncio.gather(*self._loading, return_exceptions=True)
