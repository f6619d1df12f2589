"""The engine: the calls that programs make; a change returns only after it is durable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from schedo.clock import Clock, elapsed_us
from schedo.core import commands
from schedo.core.bulk_commands import DeleteJob
from schedo.core.changes import IdempotencyRecord
from schedo.core.limits import (
    READY_ENTRIES_MAX,
    UNCOMMITTED_JOBS_MAX,
    UNCOMMITTED_PAYLOAD_BYTES_MAX,
    WINDOW_ENTRIES,
)
from schedo.core.model import Job, JobSpec, Overlap, Queue, Schedule, ScheduleSpec
from schedo.core.paged_index import Window
from schedo.core.pause_commands import PauseQueue
from schedo.core.schedule_filter import ANY_SCHEDULE, ScheduleCounts, ScheduleFilter
from schedo.core.scheduler import Scheduler
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.action_log import change
from schedo.engine.bulk_runner import BulkRunner
from schedo.engine.call_results import Accepted, Health, QueueStatus, copy_triggered
from schedo.engine.clock_changes import behind_us
from schedo.engine.command_queue import as_is
from schedo.engine.declarations import Declarations
from schedo.engine.dispatch import AttachedWorker, Transport
from schedo.engine.expectations import Expectations
from schedo.engine.failures import log_fatal
from schedo.engine.freezing import Freezing
from schedo.engine.gauges import Gauges, list_queue_statuses, read_gauges, read_queue_status
from schedo.engine.health import LoopMonitor
from schedo.engine.inbox import Inbox
from schedo.engine.invocations import Invocations
from schedo.engine.loop import EngineLoop
from schedo.engine.maintenance import Maintenance
from schedo.engine.metrics import Metrics
from schedo.engine.other_owners import OtherOwners
from schedo.engine.pausing import Pausing
from schedo.engine.settling import Settling
from schedo.engine.silent_stop import bounding_silence
from schedo.engine.summary import Summary, read_summary
from schedo.engine.waiters import wait_for_end
from schedo.engine.workers import Workers
from schedo.errors import NotFound, Overloaded, SchedoError
from schedo.store.base import Retention, Snapshot, Store
from schedo.store.pages import SchedulePage

if TYPE_CHECKING:
    from schedo.engine.ownership import Ownership
    from schedo.store.cluster import ShardOwner

T = TypeVar("T")
MakeRecord = Callable[[list[Any]], IdempotencyRecord | None]


class Engine:
    """One store, its scheduler, its clock and its workers, in the running event loop."""

    def __init__(  # noqa: PLR0913  # one keyword for each property of a server
        self,
        store: Store,
        clock: Clock,
        *,
        retention: Retention | None = None,
        draw: Callable[[], float] = random.random,
        window: Window = Window(WINDOW_ENTRIES, READY_ENTRIES_MAX),  # noqa: B008  # a constant
        on_fatal: Callable[[Exception], None] = log_fatal,
        page_url: str = "",
    ) -> None:
        """on_fatal: called with an error that ends the process. page_url: for links to the page."""
        self.store, self.clock, self._draw, self._on_fatal = store, clock, draw, on_fatal
        self.cluster: ShardOwner | None = getattr(store, "cluster", None)  # None: one server has it
        self.ownership: Ownership | None = None
        self.others: OtherOwners | None = None  # None: this server has all jobs
        self._window, self._page_url, self.metrics = window, page_url, Metrics()
        self._scheduler: Scheduler | None = None
        self.monitor = monitor = LoopMonitor(clock, self.metrics)
        self._loop = EngineLoop(store, self._make_scheduler, monitor, on_fatal)
        self._maintenance = Maintenance(self._loop, store, retention or Retention())
        self._payload_bytes, self.was_killed = 0, False  # was_killed: see Snapshot
        self._invocations = calls = Invocations(self._loop, self.wait, self.cancel)
        self.sessions, self.settling = Workers(self._loop), partial(Settling, self._loop)
        self.why = self.sessions.why
        self.expectations, self.inbox = Expectations(self._loop, store), Inbox(self._loop)
        self.declarations = Declarations(self._loop, store)
        self.tasks, self.read_tallies = self._loop.notes.tasks, partial(monitor.ends.read, store)
        self.series, self.bulk = self._maintenance.recorder, BulkRunner(self._loop, store)
        self.freezing = Freezing(self._loop, self._maintenance, self.bulk)
        pausing = Pausing(self._loop)
        self.pause, self.resume, self.pauses = pausing.pause, pausing.resume, pausing.list
        self.flush, self.report = self._loop.flush, self._loop.report
        self.note_progress, self.failures = self._loop.note_progress, self._loop.notes.failures
        # Yields a future of the end of a job; see `wait`. In a view of a submit nothing is missed.
        self.expect_end, self.dropped = self._loop.waiters.expect, self._loop.waiters.dropped
        self.note_leaving, self.bound_replay = store.note_leaving, store.bound_replay
        # Returns when a job was on disk; None if that is long ago, or before the start.
        self.durable_at = monitor.commits.find
        self.invoke, self.dry_run, self.reserve = calls.invoke, calls.dry_run, calls.reserve
        self.release_reservation, self.commit_reservation = calls.release, calls.commit

    def _make_scheduler(self, snapshot: Snapshot) -> Scheduler:
        # The newest job may be pruned, and the clock set back: its id must not be reused.
        old = self._scheduler
        self.was_killed = self.was_killed or snapshot.was_killed
        self._scheduler = Scheduler(
            epoch=snapshot.epoch,
            last_id=max(snapshot.last_id, old.last_id if old is not None else 0),
            random=self._draw,
            window=self._window,
            offset_us=snapshot.clock.offset_us,
            page_url=self._page_url,
            slot=snapshot.slot,
        )
        if old is not None:
            self._scheduler.take_over(old)
        elif snapshot.epoch > 1:
            previous_ended_at = self.metrics.began_at
            self._scheduler.follow_server(previous_ended_at, was_killed=snapshot.was_killed)
        self.monitor.use_store(snapshot.store_id, self._scheduler.last_id)
        return self._scheduler

    # Life.

    async def start(self) -> None:
        """Open the store and start; raise StoreLocked if another server holds the store."""
        self.metrics.began_at = self.clock.now()
        if self.cluster is not None:
            from schedo.engine.ownership import Ownership

            self.ownership = Ownership(self._loop, self.store, self.cluster)
        await self._loop.start()
        for part in (self.ownership, self._maintenance, self.bulk, self.inbox):
            if part is not None:
                part.start()

    async def stop(self) -> None:
        """Make everything durable and close the store; the caller stops the workers before."""
        self._loop.enqueue(commands.CompletePolls())
        with bounding_silence(self.store, self.cluster, self._on_fatal):
            for part in (self.ownership, self.inbox, self.bulk, self._maintenance):
                if part is not None:
                    await part.stop()
            await self._maintenance.check()
            await self._loop.stop()

    def use_retention(self, retention: Retention) -> None:
        """Use these retention times from now on."""
        self._maintenance.retention = retention

    async def backup(self) -> tuple[BinaryIO, int]:
        """Return a copy of the store, and the instant that it shows; see Store.backup."""
        return await self.store.backup(self.clock.now)

    def add_reasons(self, check: Callable[[], list[str]]) -> None:
        """Add a readiness check; it returns, as sentences, why jobs would not start in time."""
        self._loop.monitor.checks.append(check)

    def health(self) -> Health:
        """Return whether jobs would start in time, and the reasons against it."""
        reasons = self._loop.not_ready_reasons()
        epoch = self._loop.scheduler.epoch if self._loop.failure is None else 0
        behind = behind_us(self._scheduler, self.clock)
        return Health(not reasons, reasons, epoch, self._loop.monitor.lag_us, behind)

    def summary(self, objective_us: int) -> Summary:
        """Return the verdict and the main figures, from memory; the objective is for lateness."""
        return read_summary(self._loop, self.series, objective_us)

    async def gauges(self) -> Gauges:
        """Return the engine's gauges for monitoring."""
        return await read_gauges(self._loop, self.store)

    # Jobs.

    async def submit(
        self,
        specs: Sequence[JobSpec],
        *,
        view: Callable[[Job], T] = Job.copy,  # type: ignore[assignment]
        make_record: MakeRecord | None = None,
        may_replace: Callable[[str, str], bool] | None = None,
        home_shards: Collection[int] = (),
    ) -> list[Accepted[T] | SchedoError]:
        """Accept all specs in one commit; the result has the error of each refused spec.

        may_replace, home_shards: see commands.Submit.
        `make_record` makes the idempotency record of the request, which goes into the same commit.
        """
        self._check_room(size := sum([len(spec.payload) for spec in specs]))

        def finish(
            replies: list[commands.Accepted | SchedoError],
        ) -> list[Accepted[T] | SchedoError]:
            items = [
                Accepted(view(item.job), item.is_conflict)
                if isinstance(item, commands.Accepted)
                else item
                for item in replies
            ]
            if make_record is not None and (record := make_record(items)) is not None:
                self._loop.scheduler.apply(commands.KeepIdempotencyRecord(record), self.clock.now())
            return items

        began_at = elapsed_us(self.clock)
        self._payload_bytes += size
        try:
            command = commands.Submit(specs, may_replace, home_shards)
            items = await self._loop.try_enqueue(command, finish)
            self.metrics.note_submit(specs, elapsed_us(self.clock) - began_at)
            return items
        finally:
            self._payload_bytes -= size

    async def find_response(self, scope: str, fingerprint: bytes) -> IdempotencyRecord | None:
        """Return the record of an earlier request; see Store.find_idempotency_record."""
        find = partial(self.store.find_idempotency_record, scope, fingerprint)
        return await self._loop.look_up(find)

    def _check_room(self, size: int) -> None:
        waiting = self._loop.uncommitted
        if waiting > UNCOMMITTED_JOBS_MAX or (
            self._payload_bytes and self._payload_bytes + size > UNCOMMITTED_PAYLOAD_BYTES_MAX
        ):
            raise Overloaded(f"{waiting} jobs wait to be made durable; try again soon")

    async def get(self, job_id: int) -> Job:
        """Return a copy of the job's current record."""
        known = self.find(job_id)
        if known is not None and known.payload is not None:
            return known.copy()
        await self.inbox.bring(job_id)
        job = await self.store.get_job(job_id)
        if known is not None and self.find(job_id) is None:
            job = await self.store.get_job(job_id)  # it was committed and evicted meanwhile
        known = self.find(job_id)
        if known is not None:
            fresh = known.copy()
            if fresh.payload is None and job is not None:
                fresh.payload = job.payload
            return fresh
        return job or self.dropped.find(job_id)

    def find(self, job_id: int) -> Job | None:
        """Return the job's record in memory, which only its owner has, or None."""
        return self._loop.scheduler.find_job(job_id) if self._loop.failure is None else None

    async def cancel(self, job_id: int) -> Job:
        """End a waiting job, or request a running one to stop; cancelling twice is harmless."""
        return await self.inbox.change(commands.Cancel(job_id), Job.copy)

    async def delete(self, job_id: int) -> None:
        """Delete an ended job with its attempts and its output."""
        await self.inbox.change(DeleteJob(job_id), as_is)

    async def retry(self, job_id: int, due_at: int | None = None) -> Job:
        """Queue a failed, cancelled or expired job again, now or at an instant."""
        return await self.inbox.change(commands.RetryJob(job_id, due_at), Job.copy)

    async def run_now(self, job_id: int) -> Job:
        """Make a scheduled or retrying job due now."""
        return await self.inbox.change(commands.RunNow(job_id), Job.copy)

    async def reschedule(
        self,
        job_id: int,
        *,
        due_at: int | None = None,
        delay_us: int | None = None,
        priority: int | None = None,
    ) -> Job:
        """Change a waiting job's due time (an instant or a delay) or priority; its id stays."""
        command = commands.Reschedule(job_id, due_at, delay_us, priority)
        return await self.inbox.change(command, Job.copy)

    async def wait(
        self, job_id: int, timeout_s: float, waiter: asyncio.Future[Job] | None = None
    ) -> Job:
        """Return the job when it has ended, or its current state after `timeout_s`.

        waiter: from expect_end. Raise NotFound if the job has ended and is gone.
        """
        with nullcontext(waiter) if waiter is not None else self.expect_end(job_id) as future:
            flush = self.freezing.flush
            return await wait_for_end(future, partial(self.get, job_id), flush, timeout_s)

    # Schedules.

    async def put_schedule(self, spec: ScheduleSpec) -> tuple[Schedule, commands.PutEffect]:
        """Create the schedule or change it to the spec; return it and what that did."""
        command = commands.PutSchedule(spec)
        return await change(self._loop, command, lambda reply: (reply[0].copy(), reply[1]))

    async def delete_schedule(self, name: str) -> None:
        """Delete the schedule; its runs stay."""
        await change(self._loop, commands.DeleteSchedule(name))

    async def pause_schedule(self, name: str, note: str | None = None) -> Schedule:
        """Keep the schedule from firing until it is resumed."""
        return await change(self._loop, commands.PauseSchedule(name, note), Schedule.copy)

    async def resume_schedule(self, name: str, resume_from: int | None = None) -> Schedule:
        """Let the schedule fire again, from now or from an earlier instant."""
        return await change(self._loop, commands.ResumeSchedule(name, resume_from), Schedule.copy)

    async def trigger_schedule(
        self, name: str, overlap: Overlap | None = None
    ) -> commands.Triggered:
        """Make a run of the schedule now, even if it is paused."""
        return await change(self._loop, commands.TriggerSchedule(name, overlap), copy_triggered)

    async def get_schedule(self, name: str) -> Schedule:
        """Return the current record of the schedule."""
        schedule = await self.store.get_schedule(name)
        if schedule is None:
            raise NotFound(f"there is no schedule {name!r}")
        return self._freshest(schedule)

    async def list_schedules(
        self, after: str | None, limit: int, which: ScheduleFilter = ANY_SCHEDULE
    ) -> SchedulePage:
        """Return the next schedules of the filter by name, those after the given one."""
        which = which._replace(overdue=await self.expectations.overdue())
        page = await self.store.list_schedules(after, limit, which)
        return page._replace(schedules=[self._freshest(each) for each in page.schedules])

    async def count_schedules(self) -> ScheduleCounts:
        """Return how many schedules there are in each health."""
        return await self.store.count_schedules(await self.expectations.overdue())

    def _freshest(self, schedule: Schedule) -> Schedule:
        known = self._loop.scheduler.find_schedule(schedule.id)
        return known.copy() if known is not None else schedule

    # Queues.

    async def change_queue(self, name: str, **fields: Any) -> Queue:
        """Set the given fields of a queue and keep the others."""
        return await change(self._loop, commands.ConfigureQueue(name, fields))

    async def pause_queue(
        self, name: str, note: str | None = None, until: int | None = None
    ) -> Queue:
        """Start no more jobs of the queue until it is resumed, or until the instant."""
        return await change(self._loop, PauseQueue(name, note, until))

    async def resume_queue(self, name: str) -> Queue:
        """Start jobs of the queue again."""
        return await self.change_queue(name, paused=False)

    def get_queue(self, name: str) -> Queue:
        """Return the queue's limits: the defaults if it was never configured."""
        return self._loop.scheduler.queue(name).queue

    async def list_queues(self) -> Iterator[QueueStatus]:
        """Return every queue that has limits or unfinished jobs, by name; made one by one.

        In the first seconds after the start of a large store, this waits until it has counted its
        waiting jobs.
        """
        return await list_queue_statuses(self._loop, self.store)

    async def get_queue_status(self, name: str) -> QueueStatus:
        """Return the queue's status, also of one that has neither limits nor jobs."""
        return await read_queue_status(self._loop, self.store, name)

    # Workers.

    def attach(
        self, spec: WorkerSpec, transport: Transport, room: asyncio.Event | None = None
    ) -> None:
        """Add a worker, or replace the spec of an attached one.

        room: set while its connection takes large payloads; None: it always does.
        """
        workers = self._loop.dispatcher.workers

        def attached(_: None) -> None:
            workers[spec.id] = AttachedWorker(spec, transport, room)

        self._loop.enqueue(commands.AttachWorker(spec), attached)

    def close_worker(self, worker_id: str) -> None:
        """Dispatch no more attempts to the worker; its running ones continue."""
        closed = partial(self._loop.dispatcher.close_worker, worker_id)
        self._loop.enqueue(commands.CloseWorker(worker_id), closed)

    def detach(self, worker_id: str, message: str) -> None:
        """Remove the worker; the attempts that it still holds are lost."""
        dispatcher = self._loop.dispatcher
        detached = partial(dispatcher.remove_worker, worker_id)
        self._loop.enqueue(commands.DetachWorker(worker_id, message, dispatcher.waiting), detached)
