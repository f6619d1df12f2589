"""The blocking client, for programs that submit and read jobs; it needs only the standard library.

with Client("http://127.0.0.1:8080") as client:
    job = client.submit("email.send", {"to": "ada@example.org"}, delay="5m")
    print(job.result(timeout=600))
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Unpack

from schedo.client import (
    expectation_operations,
    monitoring_operations,
    operations,
    schedule_operations,
)
from schedo.client.errors import Unreachable
from schedo.client.events import Event, EventParser
from schedo.client.messages import TIMEOUT_S, Operation, Record, T, parse_address
from schedo.client.operations import INVOKE_WAIT_S, JobFilters
from schedo.client.options import (
    Duration,
    Instant,
    InvokeOptions,
    JobOptions,
    PauseOptions,
    ReserveOptions,
)
from schedo.client.records import is_final
from schedo.client.schedule_operations import DECISIONS_LISTED, CronOptions, ScheduleFilters
from schedo.client.sync_handles import Reservation, SyncJobHandle, Triggered
from schedo.client.sync_monitoring import Monitoring
from schedo.client.transport import Transport
from schedo.errors import SchedoError, Unavailable


class Client(Monitoring):
    """A client of one server, which threads may share.

    timeout: seconds for each response. ca_cert: the file of the only authorities to trust for TLS.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_S,
        agent: str = "schedo",
        ca_cert: str | None = None,
    ) -> None:
        self._transport = Transport(parse_address(url, token, agent, ca_cert), timeout)

    @property
    def url(self) -> str:
        """The URL of the server, as the user wrote it."""
        return self._transport.address.url

    @property
    def has_answered(self) -> bool:
        """Whether there has been a response to any request."""
        return self._transport.has_answered

    def close(self) -> None:
        """Close the connections; the next call opens a new one."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, operation: Operation[T]) -> T:
        """Send any operation of schedo.client.operations."""
        return self._transport.send(operation)

    def backup(self, file: BinaryIO) -> str:
        """Write a copy of the server's store to the file; return the instant that it shows.

        Every job acknowledged before the call is in it.
        """
        return self._transport.download(operations.create_backup(), file)

    def submit(
        self,
        task: str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncJobHandle:
        """Submit a job; it is durable when this returns."""
        request = operations.render_job(task, payload, options)
        return self._handle(operations.submit(request, idempotency_key))

    def submit_many(
        self, jobs: Iterable[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[SyncJobHandle | SchedoError]:
        """Submit many jobs, each {task, payload, …}; a rejected job has its error at its position.

        The record of a handle has the id, state, task and queue; `refresh` fetches the rest. A
        value that is not JSON raises Invalid before anything is sent.
        """
        requests = [operations.render_request(job) for job in jobs]
        return [
            item if isinstance(item, SchedoError) else SyncJobHandle(self, item)
            for operation in operations.submit_many(requests, idempotency_key)
            for item in self.send(operation)
        ]

    def broadcast(
        self,
        task: str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> list[SyncJobHandle | SchedoError]:
        """Submit one job for each connected worker that may run the task, busy or not."""
        request = operations.render_job(task, payload, options)
        return [
            item if isinstance(item, SchedoError) else SyncJobHandle(self, item)
            for item in self.send(operations.broadcast(request, idempotency_key))
        ]

    def get(self, job_id: str) -> SyncJobHandle:
        """Return a handle with the job's current record."""
        return self._handle(operations.get_job(job_id))

    def list_jobs(
        self, *, limit: int | None = None, **filters: Unpack[JobFilters]
    ) -> Iterator[SyncJobHandle]:
        """Yield at most `limit` jobs, newest first by default; pages are requested as needed."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = operations.PAGE_JOBS if left is None else min(left, operations.PAGE_JOBS)
            page = self.send(operations.list_jobs(filters, size, cursor))
            yield from (SyncJobHandle(self, record) for record in page["items"])
            cursor = page["next_cursor"]
            left = None if left is None else left - len(page["items"])
            if cursor is None:
                return

    def wait(self, job_id: str, timeout: float | None = None) -> SyncJobHandle:
        """Wait until the job has ended, at most `timeout` seconds; return its current record."""
        record: Record = {}
        for operation in operations.wait_job(job_id, timeout, time.monotonic):
            began = time.monotonic()
            record = self.send(operation)
            if is_final(record):
                break
            time.sleep(operation.early_s(time.monotonic() - began))
        return SyncJobHandle(self, record)

    def cancel(self, job_id: str) -> SyncJobHandle:
        """Cancel a waiting job, or request a running one to stop."""
        return self._handle(operations.cancel_job(job_id))

    def retry(self, job_id: str) -> SyncJobHandle:
        """Run a failed, cancelled or expired job again."""
        return self._handle(operations.retry_job(job_id))

    def run_now(self, job_id: str) -> SyncJobHandle:
        """Make a waiting job due now."""
        return self._handle(operations.run_job_now(job_id))

    def reschedule(
        self,
        job_id: str,
        *,
        run_at: Instant | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
    ) -> SyncJobHandle:
        """Change a waiting job's time or priority."""
        changes = {"run_at": run_at, "delay": delay, "priority": priority}
        return self._handle(operations.reschedule_job(job_id, changes))

    def output(self, job_id: str) -> list[Record]:
        """Return the output of its attempts: {attempt, stream, text, total_bytes, truncated}."""
        return self.send(operations.list_outputs(job_id))

    def history(self, job_id: str) -> Record:
        """Return {first_due_at, durable_at, items}: what happened to the job and when."""
        return self.send(operations.get_history(job_id))

    def why(self, job_id: str) -> Record:
        """Return {state, why, reasons, checks, workers}: all that the job waits for."""
        return self.send(operations.why_job(job_id))

    def attempts(self, job_id: str) -> list[Record]:
        """Return its attempts that did not complete the job, oldest first."""
        return self.send(operations.list_attempts(job_id))

    def progress(self, job_id: str) -> list[Record]:
        """Return the latest progress reports of its running attempt, oldest first."""
        return self.send(operations.list_progress(job_id))

    def invoke(
        self,
        task: str,
        payload: object = None,
        *,
        wait: float = INVOKE_WAIT_S,
        **options: Unpack[InvokeOptions],
    ) -> SyncJobHandle:
        """Run a job on a worker right now, and wait at most `wait` seconds for its end.

        Raise NoCapacity if no worker has room now, and Unsatisfiable if no worker could ever run
        it. If the job fails, `result()` of the handle raises JobFailed.
        """
        request = operations.render_job(task, payload, options)
        (record,) = self.send(operations.invoke(request, wait))
        return SyncJobHandle(self, record)

    def would_start(
        self, task: str, payload: object = None, **options: Unpack[InvokeOptions]
    ) -> Record:
        """Return {would_start, text, able, considered, workers} of an invocation; start nothing."""
        request = operations.render_job(task, payload, options)
        return self.send(operations.dry_run(request))

    def reserve(self, count: int = 1, **options: Unpack[ReserveOptions]) -> Reservation:
        """Reserve slots for a short time, all or none; raise NoCapacity if too few are free."""
        return Reservation(self, self.send(operations.reserve({"count": count, **options})))

    def put_schedule(
        self, name: str, *, owner: str | None = None, **spec: Any
    ) -> tuple[Record, bool]:
        """Create or replace a schedule; return it and whether it is new."""
        return self.send(schedule_operations.put_schedule(name, spec, owner))

    def get_schedule(self, name: str) -> Record:
        """Return the schedule with its next fires and counters."""
        return self.send(schedule_operations.get_schedule(name))

    def list_schedules(self, **filters: Unpack[ScheduleFilters]) -> Iterator[Record]:
        """Yield all schedules that match by name."""
        cursor: str | None = None
        while True:
            page = self.send(schedule_operations.list_schedules(cursor=cursor, **filters))
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def decisions(self, name: str, limit: int = DECISIONS_LISTED) -> list[Record]:
        """Return what the schedule decided about its latest instants, newest first: up to 500."""
        page = self.send(schedule_operations.list_decisions(name, limit))
        return page["items"]

    def explain_cron(self, cron: str, **options: Unpack[CronOptions]) -> Record:
        """Return the expression in words, with its next fires."""
        return self.send(schedule_operations.explain_cron(cron, options))

    def delete_schedule(self, name: str) -> None:
        """Delete the schedule; its jobs stay."""
        self.send(schedule_operations.delete_schedule(name))

    def pause_schedule(self, name: str, note: str | None = None) -> Record:
        """Pause the schedule: it does not fire until it is resumed."""
        return self.send(schedule_operations.pause_schedule(name, note))

    def resume_schedule(self, name: str, resume_from: Instant | None = None) -> Record:
        """Resume a paused schedule; instants since `resume_from` count as missed runs."""
        return self.send(schedule_operations.resume_schedule(name, resume_from))

    def trigger_schedule(self, name: str, overlap: str | None = None) -> Triggered:
        """Fire the schedule once now, unless its overlap policy skips the run."""
        triggered = self.send(schedule_operations.trigger_schedule(name, overlap))
        job = triggered.get("job")
        return Triggered(SyncJobHandle(self, job) if job else None, triggered.get("blocking_job"))

    def list_schedule_fires(
        self, name: str, *, start: Instant | None = None, end: Instant | None = None
    ) -> Record:
        """Return when the schedule fires: by default in the next 24 hours."""
        return self.send(schedule_operations.list_schedule_fires(name, start, end))

    def list_fires(
        self,
        *,
        start: Instant | None = None,
        hours: int | None = None,
        bucket: Duration | None = None,
        limit: int | None = None,
    ) -> Record:
        """Return when all schedules fire, and how many in the same second, by default for 24 hours.

        bucket: how long the parts are that have counts; limit: of rules.
        """
        return self.send(schedule_operations.list_fires(start, hours, bucket, limit))

    def beat(self, expectation: str) -> Record:
        """Note that the work of a named expectation has been done; return the expectation."""
        return self.send(expectation_operations.beat(expectation))

    def list_queues(self) -> list[Record]:
        """Return the queues with their limits and counts of waiting jobs."""
        return self.send(operations.list_queues())

    def set_queue(self, name: str, **limits: Any) -> Record:
        """Change concurrency, weight or priority_step of a queue; None lifts a limit."""
        return self.send(operations.set_queue(name, limits))

    def pause_queue(self, name: str, **options: Unpack[PauseOptions]) -> Record:
        """Pause the queue: it starts no new jobs until a resume, or until its end."""
        return self.send(operations.pause_queue(name, options))

    def resume_queue(self, name: str) -> Record:
        """Resume a paused queue."""
        return self.send(operations.resume_queue(name))

    def get_me(self) -> Record:
        """Return who this client is, and the names of the operations that it may call."""
        return self.send(monitoring_operations.get_me())

    def create_session_link(self) -> Record:
        """Make a code that logs a browser in, once and within a minute, at `/login#link=CODE`."""
        return self.send(monitoring_operations.create_session_link())

    def events(
        self,
        *,
        topics: Sequence[str] | None = None,
        job: str | None = None,
        schedule: str | None = None,
        last_id: str | None = None,
    ) -> Generator[Event, None, None]:
        """Yield what happens on the server, until the caller ends the loop.

        topics: of Event. job, schedule: only changes of this job, or of the runs of this schedule.
        After a broken connection it comes back, and no event is missing unless a `reset` or a `gap`
        says so; it raises Unreachable only if there is no first connection.
        """
        parser = EventParser(last_id)
        while True:
            parser.begin()
            wanted = monitoring_operations.get_events(topics, job, schedule, parser.last_id)
            try:
                for line in self._transport.stream(wanted):
                    with self._transport.address.naming(wanted):
                        yield from parser.feed(line)
            except (Unreachable, Unavailable):
                if not parser.has_begun:
                    raise
            time.sleep(parser.retry_s)

    def list_workers(self) -> list[Record]:
        """Return the workers with their specs and load."""
        return self.send(operations.list_workers())

    def get_worker(self, name: str) -> Record:
        """Return the status of the worker."""
        return self.send(operations.get_worker(name))

    def cordon_worker(self, name: str) -> Record:
        """Give the worker no new jobs; its running attempts continue."""
        return self.send(operations.cordon_worker(name))

    def uncordon_worker(self, name: str) -> Record:
        """Give a cordoned worker new jobs again."""
        return self.send(operations.uncordon_worker(name))

    def drain_worker(self, name: str) -> Record:
        """Request the worker to finish its attempts and to stop."""
        return self.send(operations.drain_worker(name))

    def _handle(self, operation: Operation[Record]) -> SyncJobHandle:
        return SyncJobHandle(self, self.send(operation))
