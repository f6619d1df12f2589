"""The client for asyncio, for programs that submit and read jobs; sync.py has the same methods.

async with AsyncClient("http://127.0.0.1:8080") as client:
    job = await client.submit("email.send", {"to": "ada@example.org"}, delay="5m")
    print(await job.result(timeout=600))
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Unpack

from schedo.client import (
    expectation_operations,
    monitoring_operations,
    operations,
    schedule_operations,
)
from schedo.client.aio_handles import AsyncJobHandle, AsyncReservation, AsyncTriggered
from schedo.client.aio_monitoring import AsyncMonitoring
from schedo.client.async_transport import AsyncTransport
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
from schedo.errors import SchedoError, Unavailable


class AsyncClient(AsyncMonitoring):
    """A client of one server, for one event loop; the arguments are those of `Client`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_S,
        agent: str = "schedo",
        ca_cert: str | None = None,
    ) -> None:
        self._transport = AsyncTransport(parse_address(url, token, agent, ca_cert), timeout)

    def use_token(self, token: str | None) -> None:
        """Send this token with the requests that follow."""
        self._transport.use_token(token)

    async def close(self) -> None:
        """Close the connections; the next call opens a new one."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def send(self, operation: Operation[T]) -> T:
        """Send any operation of schedo.client.operations."""
        return await self._transport.send(operation)

    async def submit(
        self,
        task: str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncJobHandle:
        """Submit a job; it is durable when this returns."""
        request = operations.render_job(task, payload, options)
        return await self._handle(operations.submit(request, idempotency_key))

    async def submit_many(
        self, jobs: Iterable[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[AsyncJobHandle | SchedoError]:
        """Submit many jobs, each {task, payload, …}; a rejected job has its error at its position.

        The record of a handle has the id, state, task and queue; `refresh` fetches the rest. A
        value that is not JSON raises Invalid before anything is sent.
        """
        requests = [operations.render_request(job) for job in jobs]
        return [
            item if isinstance(item, SchedoError) else AsyncJobHandle(self, item)
            for operation in operations.submit_many(requests, idempotency_key)
            for item in await self.send(operation)
        ]

    async def broadcast(
        self,
        task: str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> list[AsyncJobHandle | SchedoError]:
        """Submit one job for each connected worker that may run the task, busy or not."""
        request = operations.render_job(task, payload, options)
        return [
            item if isinstance(item, SchedoError) else AsyncJobHandle(self, item)
            for item in await self.send(operations.broadcast(request, idempotency_key))
        ]

    async def get(self, job_id: str) -> AsyncJobHandle:
        """Return a handle with the job's current record."""
        return await self._handle(operations.get_job(job_id))

    async def list_jobs(
        self, *, limit: int | None = None, **filters: Unpack[JobFilters]
    ) -> AsyncIterator[AsyncJobHandle]:
        """Yield at most `limit` jobs, newest first by default; pages are requested as needed."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = operations.PAGE_JOBS if left is None else min(left, operations.PAGE_JOBS)
            page = await self.send(operations.list_jobs(filters, size, cursor))
            for record in page["items"]:
                yield AsyncJobHandle(self, record)
            cursor = page["next_cursor"]
            left = None if left is None else left - len(page["items"])
            if cursor is None:
                return

    async def wait(
        self,
        job_id: str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncJobHandle:
        """Wait until the job has ended, at most `timeout` seconds; return its current record."""
        record: Record = {}
        for operation in operations.wait_job(job_id, timeout, time.monotonic):
            began = time.monotonic()
            record = await self.send(operation)
            if is_final(record):
                break
            await asyncio.sleep(operation.early_s(time.monotonic() - began))
        return AsyncJobHandle(self, record)

    async def cancel(self, job_id: str) -> AsyncJobHandle:
        """Cancel a waiting job, or request a running one to stop."""
        return await self._handle(operations.cancel_job(job_id))

    async def retry(self, job_id: str) -> AsyncJobHandle:
        """Run a failed, cancelled or expired job again."""
        return await self._handle(operations.retry_job(job_id))

    async def run_now(self, job_id: str) -> AsyncJobHandle:
        """Make a waiting job due now."""
        return await self._handle(operations.run_job_now(job_id))

    async def reschedule(
        self,
        job_id: str,
        *,
        run_at: Instant | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
    ) -> AsyncJobHandle:
        """Change a waiting job's time or priority."""
        changes = {"run_at": run_at, "delay": delay, "priority": priority}
        return await self._handle(operations.reschedule_job(job_id, changes))

    async def output(self, job_id: str) -> list[Record]:
        """Return the output of its attempts: {attempt, stream, text, total_bytes, truncated}."""
        return await self.send(operations.list_outputs(job_id))

    async def history(self, job_id: str) -> Record:
        """Return {first_due_at, durable_at, items}: what happened to the job and when."""
        return await self.send(operations.get_history(job_id))

    async def why(self, job_id: str) -> Record:
        """Return {state, why, reasons, checks, workers}: all that the job waits for."""
        return await self.send(operations.why_job(job_id))

    async def attempts(self, job_id: str) -> list[Record]:
        """Return its attempts that did not complete the job, oldest first."""
        return await self.send(operations.list_attempts(job_id))

    async def progress(self, job_id: str) -> list[Record]:
        """Return the latest progress reports of its running attempt, oldest first."""
        return await self.send(operations.list_progress(job_id))

    async def invoke(
        self,
        task: str,
        payload: object = None,
        *,
        wait: float = INVOKE_WAIT_S,
        **options: Unpack[InvokeOptions],
    ) -> AsyncJobHandle:
        """Run a job on a worker right now, and wait at most `wait` seconds for its end.

        Raise NoCapacity if no worker has room now, and Unsatisfiable if no worker could ever run
        it. If the job fails, `result()` of the handle raises JobFailed.
        """
        request = operations.render_job(task, payload, options)
        (record,) = await self.send(operations.invoke(request, wait))
        return AsyncJobHandle(self, record)

    async def would_start(
        self, task: str, payload: object = None, **options: Unpack[InvokeOptions]
    ) -> Record:
        """Return {would_start, text, able, considered, workers} of an invocation; start nothing."""
        request = operations.render_job(task, payload, options)
        return await self.send(operations.dry_run(request))

    async def reserve(self, count: int = 1, **options: Unpack[ReserveOptions]) -> AsyncReservation:
        """Reserve slots for a short time, all or none; raise NoCapacity if too few are free."""
        return AsyncReservation(
            self, await self.send(operations.reserve({"count": count, **options}))
        )

    async def put_schedule(
        self, name: str, *, owner: str | None = None, **spec: Any
    ) -> tuple[Record, bool]:
        """Create or replace a schedule; return it and whether it is new."""
        return await self.send(schedule_operations.put_schedule(name, spec, owner))

    async def get_schedule(self, name: str) -> Record:
        """Return the schedule with its next fires and counters."""
        return await self.send(schedule_operations.get_schedule(name))

    async def list_schedules(self, **filters: Unpack[ScheduleFilters]) -> AsyncIterator[Record]:
        """Yield all schedules that match by name."""
        cursor: str | None = None
        while True:
            page = await self.send(schedule_operations.list_schedules(cursor=cursor, **filters))
            for record in page["items"]:
                yield record
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def decisions(self, name: str, limit: int = DECISIONS_LISTED) -> list[Record]:
        """Return what the schedule decided about its latest instants, newest first: up to 500."""
        page = await self.send(schedule_operations.list_decisions(name, limit))
        return page["items"]

    async def explain_cron(self, cron: str, **options: Unpack[CronOptions]) -> Record:
        """Return the expression in words, with its next fires."""
        return await self.send(schedule_operations.explain_cron(cron, options))

    async def delete_schedule(self, name: str) -> None:
        """Delete the schedule; its jobs stay."""
        await self.send(schedule_operations.delete_schedule(name))

    async def pause_schedule(self, name: str, note: str | None = None) -> Record:
        """Pause the schedule: it does not fire until it is resumed."""
        return await self.send(schedule_operations.pause_schedule(name, note))

    async def resume_schedule(self, name: str, resume_from: Instant | None = None) -> Record:
        """Resume a paused schedule; instants since `resume_from` count as missed runs."""
        return await self.send(schedule_operations.resume_schedule(name, resume_from))

    async def trigger_schedule(self, name: str, overlap: str | None = None) -> AsyncTriggered:
        """Fire the schedule once now, unless its overlap policy skips the run."""
        triggered = await self.send(schedule_operations.trigger_schedule(name, overlap))
        job = triggered.get("job")
        return AsyncTriggered(
            AsyncJobHandle(self, job) if job else None, triggered.get("blocking_job")
        )

    async def list_schedule_fires(
        self, name: str, *, start: Instant | None = None, end: Instant | None = None
    ) -> Record:
        """Return when the schedule fires: by default in the next 24 hours."""
        return await self.send(schedule_operations.list_schedule_fires(name, start, end))

    async def list_fires(
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
        return await self.send(schedule_operations.list_fires(start, hours, bucket, limit))

    async def beat(self, expectation: str) -> Record:
        """Note that the work of a named expectation has been done; return the expectation."""
        return await self.send(expectation_operations.beat(expectation))

    async def list_queues(self) -> list[Record]:
        """Return the queues with their limits and counts of waiting jobs."""
        return await self.send(operations.list_queues())

    async def set_queue(self, name: str, **limits: Any) -> Record:
        """Change concurrency, weight or priority_step of a queue; None lifts a limit."""
        return await self.send(operations.set_queue(name, limits))

    async def pause_queue(self, name: str, **options: Unpack[PauseOptions]) -> Record:
        """Pause the queue: it starts no new jobs until a resume, or until its end."""
        return await self.send(operations.pause_queue(name, options))

    async def resume_queue(self, name: str) -> Record:
        """Resume a paused queue."""
        return await self.send(operations.resume_queue(name))

    async def get_me(self) -> Record:
        """Return who this client is, and the names of the operations that it may call."""
        return await self.send(monitoring_operations.get_me())

    async def create_session_link(self) -> Record:
        """Make a code that logs a browser in, once and within a minute, at `/login#link=CODE`."""
        return await self.send(monitoring_operations.create_session_link())

    async def events(
        self,
        *,
        topics: Sequence[str] | None = None,
        job: str | None = None,
        schedule: str | None = None,
        last_id: str | None = None,
    ) -> AsyncGenerator[Event, None]:
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
                async with aclosing(self._transport.stream(wanted)) as pieces:
                    async for piece in pieces:
                        with self._transport.address.naming(wanted):
                            for event in parser.feed(piece):
                                yield event
            except (Unreachable, Unavailable):
                if not parser.has_begun:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(parser.retry_s):
                    await asyncio.Event().wait()

    async def list_workers(self) -> list[Record]:
        """Return the workers with their specs and load."""
        return await self.send(operations.list_workers())

    async def get_worker(self, name: str) -> Record:
        """Return the status of the worker."""
        return await self.send(operations.get_worker(name))

    async def cordon_worker(self, name: str) -> Record:
        """Give the worker no new jobs; its running attempts continue."""
        return await self.send(operations.cordon_worker(name))

    async def uncordon_worker(self, name: str) -> Record:
        """Give a cordoned worker new jobs again."""
        return await self.send(operations.uncordon_worker(name))

    async def drain_worker(self, name: str) -> Record:
        """Request the worker to finish its attempts and to stop."""
        return await self.send(operations.drain_worker(name))

    async def _handle(self, operation: Operation[Record]) -> AsyncJobHandle:
        return AsyncJobHandle(self, await self.send(operation))
