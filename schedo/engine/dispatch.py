"""The dispatcher: it sends leases to workers and keeps them until their results are durable.

A worker receives a lease before the store records the start. So a recovery needs, besides the
store, the leases that are dispatched and the results that the store may not have yet.
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
from schedo.core.scheduler import Scheduler
from schedo.core.value_limits import is_refused, refused
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError

log = logging.getLogger("schedo.engine")

PAYLOAD_PAUSE_US = SECOND


class Transport(Protocol):
    """The connection to one worker; neither method blocks or raises."""

    def start(self, lease: Lease) -> None:
        """Let the worker run the attempt; the lease has its payload."""

    def stop(self, stop: StopRequest) -> None:
        """Request the worker to stop the attempt."""


class Dispatcher:
    """The attached workers with their transports, and the leases that each of them has."""

    def __init__(
        self,
        load_payload: Callable[[int], Awaitable[bytes]],
        report: Callable[[AttemptResult], None],
    ) -> None:
        self._load_payload = load_payload
        self._report = report
        self._leases: dict[LeaseKey, Lease] = {}  # dispatched, their results not yet durable
        # Applied, not yet durable; lost attempts have a result here as well.
        self._results: dict[LeaseKey, AttemptResult] = {}
        # Leases that wait for a commit or a payload: no worker has them yet.
        self.waiting: set[LeaseKey] = set()
        self._ended: list[LeaseKey] = []
        self._loading: set[asyncio.Task[None]] = set()
        self.workers: dict[str, tuple[WorkerSpec, Transport]] = {}
        # Dispatched when durable: leases of jobs that run at most once, of jobs that are created
        # with their attempt, and of workers that require durable starts.
        self.deferred: list[Lease] = []
        # Whether a lease waits until the others of its gang are ready. The part that defers it
        # calls dispatch_deferred later.
        self.should_defer: Callable[[Lease], bool] = lambda lease: False

    # Dispatch.

    def dispatch(self, leases: Iterable[Lease]) -> None:
        """Send the leases that may run at once; the others wait for a commit or their payload."""
        for lease in leases:
            spec, transport = self.workers[lease.worker]
            if lease.options.at_most_once or lease.trigger is Trigger.INVOKE or spec.durable_starts:
                self.waiting.add(lease.key)
                self.deferred.append(lease)
            elif lease.payload is None:
                self.waiting.add(lease.key)
                self._load(lease)
            else:
                self._leases[lease.key] = lease
                transport.start(lease)

    def dispatch_deferred(self, lease: Lease) -> None:
        """Send a lease that had to wait, unless its attempt has ended meanwhile."""
        attached = self.workers.get(lease.worker)
        if attached is None or not self._scheduler.is_live(lease.key):
            self.waiting.discard(lease.key)
            return
        if lease.payload is None:
            self._load(lease)
            return
        if self.should_defer(lease):
            return
        self.waiting.discard(lease.key)
        self._leases[lease.key] = lease
        attached[1].start(lease)
        reason = self._scheduler.stop_reason(lease.key.job_id)
        if reason is not None:
            attached[1].stop(StopRequest(lease.key, lease.worker, reason))

    def stop(self, stop: StopRequest) -> None:
        """Send the stop request to the worker if it is still attached."""
        attached = self.workers.get(stop.worker)
        if attached is not None:
            attached[1].stop(stop)

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

    # Results.

    def record_result(self, result: AttemptResult) -> None:
        """Keep the result of a live attempt until it is durable."""
        self._ended.append(result.key)
        self._results[result.key] = result

    def record_refusal(self, key: LeaseKey) -> None:
        """Forget a stale lease after the next commit."""
        self._ended.append(key)

    def record_loss(self, key: LeaseKey, message: str) -> None:
        """Keep the loss of a dispatched attempt until it is durable."""
        self._ended.append(key)
        if key in self._leases:
            self._results.setdefault(key, AttemptResult(key, Lost(message)))

    def take(self) -> tuple[list[Lease], list[LeaseKey]]:
        """Return what the next commit releases: leases to dispatch, and attempts to forget."""
        taken = self.deferred, self._ended
        self.deferred, self._ended = [], []
        return taken

    def forget(self, keys: Iterable[LeaseKey]) -> None:
        """Forget attempts whose results are durable."""
        for key in keys:
            self._leases.pop(key, None)
            self._results.pop(key, None)
            if self.waiting:
                self.waiting.discard(key)

    # Recovery.

    def recover(self, scheduler: Scheduler) -> None:
        """Continue with a new scheduler, which decides again about deferred leases."""
        self._scheduler = scheduler
        self.deferred, self._ended = [], []
        for task in self._loading:
            task.cancel()

    def expect(self, lease: Lease) -> None:
        """Count an attempt of the previous server as dispatched."""
        self._leases[lease.key] = lease

    def latest(self) -> dict[int, Lease]:
        """Return the last dispatched lease of each job, by job id."""
        return {lease.key.job_id: lease for lease in self._leases.values()}

    def results(self) -> list[AttemptResult]:
        """Return the results that a recovery applies again."""
        return list(self._results.values())

    def refuse_results(self, faults: Mapping[int, str]) -> bool:
        """Turn the results of these jobs, by id, into failures, because the store refuses them.

        Return False if there is none that was not refused before.
        """
        found = [
            result
            for result in self._results.values()
            if result.key.job_id in faults and not is_refused(result)
        ]
        for result in found:
            self._results[result.key] = refused(result, faults[result.key.job_id])
        return bool(found)

    def recovered(self) -> None:
        """Forget the leases that waited: new, durable decisions have replaced them."""
        self.waiting.clear()

    async def close(self) -> None:
        """Wait for the payloads that are still being loaded."""
        await asyncio.gather(*self._loading, return_exceptions=True)
