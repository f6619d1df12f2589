"""The turn loop: commands and due instants in, leases and changes out.

    commands -> tick(now) -> leases, stops -> journal -> arm the clock

A turn never waits. It runs when a command arrives or the clock rings, takes all commands there
are, lets the scheduler decide, and hands out what was decided. The journal then makes it durable
beside it.

There is one way to recover, for the start as for a failed commit: drop the scheduler, take stock
of the store, take back the attempts that workers still run and the reports that are not yet
durable, go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Protocol

from schedo.clock import Clock
from schedo.core.leases import Lease, Report, Stop
from schedo.core.model import Job, LeaseKey, Place
from schedo.core.scheduler import Scheduler
from schedo.core.wants import Want
from schedo.core.workers import WorkerOffer
from schedo.engine.channel import Channel
from schedo.engine.journal import Batch, Journal
from schedo.errors import SchedoError, StaleLease, StoreBroken, StoreError, Unavailable
from schedo.store.base import Opening, Store

log = logging.getLogger("schedo.engine")

Command = Callable[[Scheduler, int], None]
COMMANDS_WAITING_MAX = 100_000
RECOVERY_PAUSE_S = 1.0
RUNNING_PAGE = 1_000


class Transport(Protocol):
    """The way to one worker; neither method blocks or raises."""

    def start(self, lease: Lease) -> None:
        """Let the worker run the attempt; the lease's payload is there."""

    def stop(self, stop: Stop) -> None:
        """Ask the worker to end the attempt."""


class TurnLoop:
    """Owns the scheduler and everything that touches it, in one event loop."""

    def __init__(
        self, store: Store, clock: Clock, make_scheduler: Callable[[Opening], Scheduler]
    ) -> None:
        self._store = store
        self.clock = clock
        self._make_scheduler = make_scheduler
        self._is_open = False
        self._is_turn_due = False
        self._replies: list[tuple[asyncio.Future[Any], Any]] = []
        self._held: list[Lease] = []
        self._ended: list[LeaseKey] = []
        self._leases: dict[LeaseKey, Lease] = {}  # handed out, their end not yet durable
        self._reports: dict[LeaseKey, Report] = {}  # taken in, not yet durable
        self._offers: dict[str, tuple[WorkerOffer, Transport]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self.waiters: dict[int, list[asyncio.Future[Job]]] = {}
        self.on_fatal: Callable[[BaseException], None] = _log_fatal
        self.failure: SchedoError | None = Unavailable("the server is starting")

    # Life.

    async def start(self) -> None:
        """Take the store, recover, and begin to turn; raise what the store raises."""
        self._loop = asyncio.get_running_loop()
        self._inbox: Channel[Command] = Channel(self._loop, self.wake, COMMANDS_WAITING_MAX)
        self._journal = Journal(self._store, self._take_batch, self._release, self._deliver)
        self.clock.start(self._turn, self._clock_stepped)
        await self._recover(await self._store.open())
        self._runner = self._loop.create_task(self._run_journal(), name="schedo journal")

    async def stop(self) -> None:
        """Make everything durable, then stop turning and let go of the store."""
        with contextlib.suppress(SchedoError):  # a store that failed keeps what it has
            await self.settled()
        self._is_open = False
        self.failure = Unavailable("the server has stopped")
        self._runner.cancel()
        await asyncio.gather(self._runner, *self._starting, return_exceptions=True)
        self.clock.close()
        self._fail_waiting(self.failure)
        await self._store.close()

    # What others call.

    def send(self, command: Command) -> None:
        """Let the command act in the next turn; raise at once if that cannot be."""
        if self.failure is not None:
            raise self.failure
        self._inbox.send(command)

    @property
    def uncommitted(self) -> int:
        """How many jobs wait to be made durable, those on their way not counted."""
        return len(self.scheduler.memory.changes.jobs) if self._is_open else 0

    def wake(self) -> None:
        """Turn soon."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def reply(self, reply: asyncio.Future[Any], value: Any) -> None:
        """Answer once all changes made so far are durable."""
        self._replies.append((reply, value))

    async def settled(self) -> None:
        """Return once all commands sent so far have acted and all changes are durable."""
        reply: asyncio.Future[None] = self._loop.create_future()
        self.send(lambda scheduler, now: self.reply(reply, None))
        await reply

    def attach(self, offer: WorkerOffer, transport: Transport) -> None:
        """Add a worker, or change what it offers."""
        self._offers[offer.id] = (offer, transport)
        self._inbox.send(lambda scheduler, now: scheduler.attach(offer))

    def close_worker(self, worker_id: str) -> None:
        """Give the worker no more; what it runs goes on."""
        self._inbox.send(lambda scheduler, now: scheduler.workers.close(worker_id))

    def detach(self, worker_id: str, message: str) -> None:
        """Forget the worker; what it still held is lost."""
        self._offers.pop(worker_id, None)

        def detach(scheduler: Scheduler, now: int) -> None:
            lost = scheduler.detach(worker_id, message, now)
            self._ended.extend(lost)

        self._inbox.send(detach)

    def report(self, report: Report) -> None:
        """Take in how an attempt ended."""
        self._reports[report.key] = report
        self._inbox.send(lambda scheduler, now: self._settle(scheduler, report, now))

    def _settle(self, scheduler: Scheduler, report: Report, now: int) -> None:
        self._ended.append(report.key)
        try:
            scheduler.report(report, now)
        except StaleLease as error:
            log.warning("%s", error)

    # The turn.

    def _turn(self) -> None:
        self._is_turn_due = False
        if not self._is_open:
            return
        now = self.clock.now()
        scheduler = self.scheduler
        try:
            for command in self._inbox.drain():
                command(scheduler, now)
            scheduler.tick(now)
        except Exception as error:
            self._break(error)
            return
        for lease in scheduler.attempts.take_leases():
            self._start(lease)
        for stop in scheduler.attempts.take_stops():
            self._stop(stop)
        if scheduler.has_news or self._replies or self._held:
            self._journal.wake()
        self._sleep_until(scheduler.next_wake_at())

    def _sleep_until(self, at: int | None) -> None:
        if at is not None and at <= self.clock.now():
            self.wake()
        else:
            self.clock.arm(at)

    def _start(self, lease: Lease) -> None:
        self._leases[lease.key] = lease
        if lease.options.at_most_once:
            self._held.append(lease)
        else:
            self._hand_out(lease)

    def _hand_out(self, lease: Lease) -> None:
        known = self._offers.get(lease.worker)
        if known is None:
            return  # detached in the same turn: the attempt is lost already
        if lease.payload is None:
            task = self._loop.create_task(self._load_and_hand_out(lease))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
            return
        known[1].start(lease)
        reason = self.scheduler.attempts.stop_reason(lease.key.job_id)
        if reason is not None:  # asked to stop while it waited for its commit or its payload
            known[1].stop(Stop(lease.key, lease.worker, reason))

    async def _load_and_hand_out(self, lease: Lease) -> None:
        try:
            payload = await self._store.load_payload(lease.key.job_id)
        except SchedoError as error:
            log.error("the payload of a job could not be read: %s", error)
            return  # the store fails: recovery hands it back
        if lease.key in self._leases:
            self._hand_out(lease._replace(payload=payload))

    def _stop(self, stop: Stop) -> None:
        known = self._offers.get(stop.worker)
        if known is not None:
            known[1].stop(stop)

    def _clock_stepped(self, delta_us: int) -> None:
        log.warning("the clock was set %+.3f s", delta_us / 1_000_000)
        if self._is_open:
            self.scheduler.attempts.shift_deadlines(delta_us)

    # The journal's side.

    def _take_batch(self) -> Batch:
        scheduler = self.scheduler
        batch = Batch(scheduler.take_changes(), scheduler.take_wants())
        batch.replies, self._replies = self._replies, []
        batch.leases, self._held = self._held, []
        batch.ended, self._ended = self._ended, []
        if self.waiters:
            jobs = batch.changes.jobs.values()
            batch.finals = [job.copy() for job in jobs if job.is_final and job.id in self.waiters]
        return batch

    def _release(self, batch: Batch) -> None:
        self.scheduler.committed()
        for key in batch.ended:
            self._leases.pop(key, None)
            self._reports.pop(key, None)
        for reply, value in batch.replies:
            if not reply.done():
                reply.set_result(value)
        for lease in batch.leases:
            self._hand_out(lease)
        if batch.changes.jobs:
            self.wake()  # what is durable now may run
        for job in batch.finals:
            for waiter in self.waiters.pop(job.id, ()):
                if not waiter.done():
                    waiter.set_result(job)

    def _deliver(self, loaded: list[tuple[Want, Any]]) -> None:
        now = self.clock.now()
        try:
            for want, found in loaded:
                self.scheduler.deliver(want, found, now)
        except Exception as error:
            self._break(error)
            return
        self._turn()

    async def _run_journal(self) -> None:
        """Run the journal; when it fails, recover and run it again."""
        while True:
            try:
                await self._journal.run()
            except SchedoError as error:
                self._fail(error)
            while not self._is_open and not isinstance(self.failure, StoreBroken):
                try:
                    await self._recover(await self._store.take_stock())
                except StoreError as error:
                    self._fail(error)
                    await asyncio.sleep(RECOVERY_PAUSE_S)
            if isinstance(self.failure, StoreBroken):
                return  # nothing that this process does can be trusted any more

    # Failure and recovery.

    def _break(self, error: Exception) -> None:
        """A bug in the scheduler or a command: nothing in memory can be trusted."""
        log.error("a turn failed; recovering from the store", exc_info=error)
        self._fail(Unavailable("an internal error; the server recovers"))
        self._runner.cancel()
        self._runner = self._loop.create_task(self._run_journal(), name="schedo journal")

    def _fail(self, error: SchedoError) -> None:
        self._is_open = False
        self.failure = error
        log.error("the store failed: %s", error)
        self._fail_waiting(error)
        if isinstance(error, StoreBroken):
            self.on_fatal(error)

    def _fail_waiting(self, error: SchedoError) -> None:
        Batch(self.scheduler.memory.changes, replies=self._replies).fail(error)
        self._replies = []

    async def _recover(self, opening: Opening) -> None:
        """Make a new scheduler of the store, the workers' attempts and what they reported."""
        scheduler = self.scheduler = self._make_scheduler(opening)
        scheduler.restore(opening.queues, opening.lanes, opening.blocked)
        for offer, _ in self._offers.values():
            scheduler.attach(offer)
        self._held = []
        await self._resume_running(scheduler)
        for report in self._reports.values():
            self._settle(scheduler, report, self.clock.now())
        await self._journal.round()
        self._is_open = True
        self.failure = None
        self.wake()

    async def _resume_running(self, scheduler: Scheduler) -> None:
        now = self.clock.now()
        leases = {key.job_id: lease for key, lease in self._leases.items()}
        after = 0
        while page := await self._store.load_running(after, RUNNING_PAGE):
            after = page[-1].id
            for job in page:
                scheduler.adopt_running(job, self._live(leases.pop(job.id, None), job), now)
        for lease in leases.values():  # handed out, but the start never reached the store
            stored = await self._store.load_job(lease.key.job_id)
            if stored is not None and self._live(lease, stored) is not None:
                scheduler.adopt_running(stored, lease, now)
            else:
                self._leases.pop(lease.key, None)

    def _live(self, lease: Lease | None, job: Job) -> Lease | None:
        """Return the lease if it is the job's newest attempt and its worker is still there."""
        if lease is None or lease.worker not in self._offers or job.is_final:
            return None
        if job.place is Place.RUNNING or job.attempt > lease.key.attempt:
            return None
        return lease


def _log_fatal(error: BaseException) -> None:
    log.critical("the store is broken: %s", error)
