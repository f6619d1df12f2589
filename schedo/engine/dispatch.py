"""The dispatcher: it sends leases to workers and keeps them until their results are durable.

A worker receives a lease before the store records the start. So a recovery needs, besides the
store, the leases that are dispatched and the results that the store may not have yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from schedo.core.leases import AttemptResult, Failed, Lease, Snoozed, StopReason, StopRequest
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_PAUSE_US
from schedo.core.model import LeaseKey
from schedo.core.scheduler import Scheduler
from schedo.core.value_limits import is_refused, refused
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError

log = logging.getLogger("schedo.engine")

DatedResult = tuple[AttemptResult, int]  # and the instant at which it came
LOADS_MAX = 4  # payloads of up to 1 MiB that are on their way from the store to a transport


class Transport(Protocol):
    """The connection to one worker; neither method blocks or raises."""

    def start(self, lease: Lease) -> object:
        """Let the worker run the attempt; the lease of an attached worker has its payload."""

    def stop(self, stop: StopRequest) -> None:
        """Request the worker to stop the attempt."""


class AttachedWorker(NamedTuple):
    """A worker of this server."""

    spec: WorkerSpec
    transport: Transport
    room: asyncio.Event | None  # set: its connection takes a large payload; None: it always does
    is_open: bool = True  # False: it finishes its attempts and gets no more


class Dispatcher:
    """The attached workers with their transports, and the leases that each of them has."""

    def __init__(
        self,
        load_payload: Callable[[int], Awaitable[bytes]],
        report: Callable[[AttemptResult], None],
        remote: Transport,
    ) -> None:
        """remote: the transport to all workers that are not attached here."""
        self._remote = remote
        self._load_payload = load_payload
        self._report = report
        self._leases: dict[LeaseKey, Lease] = {}  # dispatched, their results not yet durable
        # Applied, not yet durable, and when they came; lost attempts have a result here as well.
        self._results: dict[LeaseKey, DatedResult] = {}
        self._late: list[DatedResult] = []  # not applied: they have come during an outage
        # Leases that wait for their payload, and in a recovery all that the old scheduler has not
        # sent: no worker has them.
        self.waiting: set[LeaseKey] = set()
        self._ended: list[LeaseKey] = []
        self._loading: set[asyncio.Task[None]] = set()
        self._loads = asyncio.Semaphore(LOADS_MAX)
        self.workers: dict[str, AttachedWorker] = {}

    # The end of a worker; `_` is the scheduler's reply.

    def close_worker(self, worker_id: str, _: None) -> None:
        """Give the worker no more attempts after a recovery either."""
        attached = self.workers.get(worker_id)
        if attached is not None:
            self.workers[worker_id] = attached._replace(is_open=False)

    def remove_worker(self, worker_id: str, _: None) -> None:
        """Forget the worker."""
        self.workers.pop(worker_id, None)

    # Dispatch.

    def dispatch(self, leases: Iterable[Lease], stops: Iterable[StopRequest]) -> None:
        """Send leases, and stop requests.

        An attached worker gets a lease when its payload is loaded and its connection has room for
        it, a remote one without a large payload: the response to its poll loads it.
        """
        for lease in leases:
            attached, payload, kept = self.workers.get(lease.worker), lease.payload, lease
            if payload is not None and len(payload) > PAYLOAD_INLINE_BYTES_MAX:
                kept = replace(lease, payload=None)  # a large payload stays in the store
            if attached is None:
                self._leases[lease.key] = kept
                self._remote.start(kept)
            elif payload is None or (kept.payload is None and _is_full(attached.room)):
                self.waiting.add(lease.key)
                self._load(kept, attached.room)
            else:
                self._leases[lease.key] = kept
                attached.transport.start(lease)
        for stop in stops:
            self._transport(stop.worker).stop(stop)

    def _dispatch_loaded(self, lease: Lease) -> None:
        """Send a lease whose payload was loaded, unless its attempt has ended meanwhile."""
        self.waiting.discard(lease.key)
        if self._scheduler.is_live(lease.key):
            reason = self._scheduler.stop_reason(lease.key.job_id)
            stops = [] if reason is None else [StopRequest(lease.key, lease.worker, reason)]
            self.dispatch([lease], stops)

    def _transport(self, worker: str) -> Transport:
        attached = self.workers.get(worker)
        return attached.transport if attached is not None else self._remote

    def _load(self, lease: Lease, room: asyncio.Event | None) -> None:
        task = asyncio.create_task(self._load_and_start(lease, room))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _load_and_start(self, lease: Lease, room: asyncio.Event | None) -> None:
        """Load the payload and send the lease; few at a time, and none before there is room."""
        while True:
            if room is not None:
                await room.wait()
            async with self._loads:
                if not _is_full(room):  # another lease may have taken the room
                    await self._load_with_room(lease)
                    return

    async def _load_with_room(self, lease: Lease) -> None:
        try:
            payload = await self._load_payload(lease.key.job_id)
        except SchedoError as error:
            log.error("the payload of a job could not be read: %s", error)
            self._report(AttemptResult(lease.key, Snoozed(PAYLOAD_PAUSE_US)))
        else:
            self._dispatch_loaded(replace(lease, payload=payload))

    # Results.

    def record_results(self, results: Iterable[AttemptResult], now: int) -> None:
        """Keep the results of attempts until they are durable; log those that are no result."""
        for result in results:
            key = result.key
            if type(result.outcome) is Failed and is_refused(result):
                log.error("the result of %s is refused: %s", key, result.outcome)
            self._ended.append(key)
            if key in self._leases:  # a recovery applies the result again, as of the same instant
                self._results.setdefault(key, (result, now))

    def note_late(self, results: Iterable[AttemptResult], now: int) -> None:
        """Keep results that have come now, for the recovery that ends an outage of the store."""
        self._late += [(result, now) for result in results]

    def record_refusal(self, key: LeaseKey) -> None:
        """Forget a stale lease after the next commit."""
        self._ended.append(key)

    def take_ended(self) -> list[LeaseKey]:
        """Return the attempts to forget after the next commit."""
        ended, self._ended = self._ended, []
        return ended

    def forget(self, keys: Collection[LeaseKey]) -> None:
        """Forget attempts whose results are durable."""
        forget_lease, forget_result = self._leases.pop, self._results.pop
        for key in keys:
            forget_lease(key, None)
            forget_result(key, None)
        if self.waiting:
            self.waiting.difference_update(keys)

    # Recovery.

    def give_up(self, lease: Lease) -> None:
        """Forget an attempt that is not this server's any more, and stop it if it still runs here.

        A remote worker lists what it runs, and learns so that it must stop.
        """
        key, attached = lease.key, self.workers.get(lease.worker)
        if attached is not None and key not in self._results and key not in self.waiting:
            attached.transport.stop(StopRequest(key, lease.worker, StopReason.CANCEL))
        self.forget([key])

    def recover(self, scheduler: Scheduler) -> None:
        """Continue with a new scheduler, which decides again about leases that were not sent."""
        self._scheduler = scheduler
        self._ended = []
        for task in self._loading:
            task.cancel()

    def expect(self, lease: Lease) -> None:
        """Count an attempt of the previous server as dispatched."""
        self._leases[lease.key] = lease

    def latest(self) -> dict[int, Lease]:
        """Return the last dispatched lease of each job, by job id."""
        return {lease.key.job_id: lease for lease in self._leases.values()}

    def held_here(self) -> list[tuple[Lease, Transport]]:
        """Return the leases that attached workers still run, each with its worker's transport."""
        return [
            (lease, self.workers[lease.worker].transport)
            for key, lease in self._leases.items()
            if lease.worker in self.workers and key not in self._results
        ]

    def results(self) -> list[DatedResult]:
        """Return the results that a recovery applies, some of them again."""
        for late in self._late:
            self._results.setdefault(late[0].key, late)
        self._late.clear()
        return list(self._results.values())

    def take_late(self) -> list[AttemptResult]:
        """Return the results that have come since the recovery applied those before them."""
        late, self._late = self._late, []
        return [result for result, _ in late]

    def refuse_results(self, faults: Mapping[int, str]) -> bool:
        """Turn the results of these jobs, by id, into failures, because the store refuses them.

        Return False if there is none that was not refused before.
        """
        found = [
            (result, at)
            for result, at in self._results.values()
            if result.key.job_id in faults and not is_refused(result)
        ]
        for result, at in found:
            self._results[result.key] = refused(result, faults[result.key.job_id]), at
        return bool(found)

    def recovered(self) -> None:
        """Forget the leases that waited: new, durable decisions have replaced them."""
        self.waiting.clear()

    async def close(self) -> None:
        """Wait for the payloads that are still being loaded."""
        await asyncio.gather(*self._loading, return_exceptions=True)


def _is_full(room: asyncio.Event | None) -> bool:
    return room is not None and not room.is_set()
