"""Testers: an application with the real engine, a store in memory and a clock that the test moves.

Tester is for tests that are not async: it runs the engine and the tasks in a thread of its own.
AsyncTester runs them in the event loop of the test. Both have two modes:

drain: jobs are kept until drain().
inline: enqueue() returns when the job has run, if it is due now.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, Self, TypeVar, get_args

from schedo.app.application import CONCURRENCY, Schedo
from schedo.app.embedded import EmbeddedServer
from schedo.app.tasks import Task
from schedo.client.options import Duration, Instant, render_value
from schedo.clock import SystemClock
from schedo.core.ids import render_id
from schedo.core.job_filter import JobFilter
from schedo.core.states import FINAL
from schedo.errors import Invalid, SchedoError
from schedo.protocol.fields import read_instant
from schedo.protocol.job_templates import JobTemplate
from schedo.protocol.jobs import SubmittedJob
from schedo.tasks.backend import Backend, Record
from schedo.tasks.current_job import find_context, to_microseconds
from schedo.testing.enqueued import check_enqueued
from schedo.virtual_clock import VirtualClock

Mode = Literal["drain", "inline"]
SETTLE_S = 5.0
_PAGE_JOBS = 1_000
_STOP_S = 0.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
T = TypeVar("T")


class AsyncTester:
    """Runs the tasks and schedules of an application for a test, in the running event loop.

    async with AsyncTester(app, start="2026-03-28T00:00:00Z") as tester:
        await signup("ada@example.org")
        await tester.assert_enqueued(send_email, to="ada@example.org")
        await tester.drain()
        await tester.advance("1h")

    mode: "drain" or "inline". start: the instant at which the clock stands; by default the present.
    settle: the longest real time that a call waits for running jobs, such as one that waits for its
    own timeout. The application's own store and server are not used.
    """

    def __init__(
        self,
        app: Schedo,
        *,
        mode: Mode = "drain",
        start: Instant | None = None,
        settle: Duration = SETTLE_S,
    ) -> None:
        if mode not in get_args(Mode):
            raise Invalid(f"mode = {mode!r}: it must be drain or inline")
        self.app = app
        self.mode: Mode = mode
        self._start_us = SystemClock().now() if start is None else _read_instant("start", start)
        self._settle_s = to_microseconds(settle) / 1_000_000

    async def __aenter__(self) -> Self:
        if self.app.is_running:
            raise RuntimeError("this Schedo is already running, or another tester runs it")
        clock = self._clock = VirtualClock(self._start_us)
        server = self._server = EmbeddedServer(":memory:", self.app.registry, CONCURRENCY, clock)
        use = partial(self.app.use_backend, _TestBackend(self, server.backend))
        await server.start(use, self.app.leave_backend)
        self._settling = server.engine.settling(self._settle_s)
        if self.mode == "drain":
            server.hold()
        await self._settling.flush()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.app.leave_backend()
        await self._server.stop(_STOP_S)

    # The clock.

    def now(self) -> datetime:
        """Return the time of the clock."""
        return _EPOCH + timedelta(microseconds=self._clock.now())

    async def advance(self, by: Duration | None = None, *, to: Instant | None = None) -> None:
        """Move the clock by a duration, or to an instant; what becomes due happens on the way.

        Schedules fire, and delays and retries end, each at its own instant. In drain mode their
        jobs wait for drain().
        """
        if (by is None) == (to is None):
            raise Invalid("give either a duration or to=, the instant to move to")
        at = self._clock.now() + to_microseconds(by) if by is not None else _read_instant("to", to)
        await self._settling.move_clock(at)

    # Jobs.

    async def drain(self) -> Counter[str]:
        """Run the jobs that are due now, and the jobs that they enqueue; return how many, by state.

        A job that failed and has retries left counts as "retrying": it is due again later.
        """
        before = {job["id"]: job["attempt"] for job in await self.jobs()}
        self._server.release()
        await self._settling.flush()
        if self.mode == "drain":
            self._server.hold()
            await self._settling.flush()
        return Counter(
            job["state"] for job in await self.jobs() if job["attempt"] != before.get(job["id"], 0)
        )

    async def jobs(self, task: Task[..., Any, Any] | str | None = None) -> list[Record]:
        """Return all jobs of the test, or those of a task, oldest first, as the API shows them."""
        engine, name = self._server.engine, task.name if isinstance(task, Task) else task
        await engine.flush()
        which = JobFilter(task=name)
        page = await engine.store.list_jobs(which, None, _PAGE_JOBS)
        found = page.jobs
        while page.after is not None:
            page = await engine.store.list_jobs(which, page.after, _PAGE_JOBS)
            found += page.jobs
        backend = self._server.backend
        return [await backend.get(render_id(job.id)) for job in reversed(found)]

    async def assert_enqueued(
        self,
        task: Task[..., Any, Any] | str,
        payload: Mapping[str, Any] | None = None,
        /,
        *,
        queue: str | None = None,
        count: int | None = None,
        **arguments: Any,
    ) -> list[Record]:
        """Raise AssertionError unless a job of the task has these arguments; return such jobs.

        The jobs may have any state, and other arguments besides. count: there must be exactly this
        number of them. payload: the same as arguments, also for names such as "count".
        """
        __tracebackhide__ = True
        found = await self.jobs()
        return check_enqueued(found, task, {**(payload or {}), **arguments}, queue, count)

    # The backend's side.

    async def settle(self) -> int:
        """Wait until the jobs that are due and may run have ended; return how many still run."""
        return await self._settling.flush()


class _TestBackend:
    """The backend of the tested application; it does not wait for what only the test can do."""

    def __init__(self, tester: AsyncTester, backend: Backend) -> None:
        self._tester = tester
        self._backend = backend

    async def submit(
        self, jobs: Sequence[tuple[JobTemplate, bytes]]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit the jobs; in inline mode, return when they have run."""
        submitted = await self._backend.submit(jobs)
        if self._tester.mode == "inline" and find_context() is None:
            await self._tester.settle()
        return submitted

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""
        return await self._backend.get(job_id)

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final; raise RuntimeError if it waits for the test itself."""
        if find_context() is None and not await self._tester.settle():
            record = await self._backend.get(job_id)
            if record["state"] not in FINAL:
                raise RuntimeError(
                    f"job {job_id} of task {record['task']} is {record['state']}, due at"
                    f" {record['scheduled_at']}, and the clock stands at"
                    f" {self._tester.now().isoformat()}: call drain() or advance() first"
                )
        return await self._backend.wait(job_id, timeout_s)

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""
        return await self._backend.cancel(job_id)


class Tester:
    """Runs the tasks and schedules of an application for a test that is not async.

    The engine and the async tasks run in the event loop of a thread, plain tasks in other threads.
    The methods are those of AsyncTester, without await.
    """

    __test__ = False  # pytest must not collect it

    def __init__(
        self,
        app: Schedo,
        *,
        mode: Mode = "drain",
        start: Instant | None = None,
        settle: Duration = SETTLE_S,
    ) -> None:
        self._tester = AsyncTester(app, mode=mode, start=start, settle=settle)

    @property
    def app(self) -> Schedo:
        """The application."""
        return self._tester.app

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="schedo tester")
        self._thread.start()
        try:
            self._run(self._tester.__aenter__())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._run(self._tester.__aexit__(None, None, None))
        finally:
            self._end_thread()

    def now(self) -> datetime:
        """Return the time of the clock."""
        return self._tester.now()

    def advance(self, by: Duration | None = None, *, to: Instant | None = None) -> None:
        """Move the clock; see AsyncTester.advance."""
        self._run(self._tester.advance(by, to=to))

    def drain(self) -> Counter[str]:
        """Run the jobs that are due now; return how many, by state; see AsyncTester.drain."""
        return self._run(self._tester.drain())

    def jobs(self, task: Task[..., Any, Any] | str | None = None) -> list[Record]:
        """Return all jobs of the test, or those of a task, oldest first."""
        return self._run(self._tester.jobs(task))

    def assert_enqueued(
        self,
        task: Task[..., Any, Any] | str,
        payload: Mapping[str, Any] | None = None,
        /,
        *,
        queue: str | None = None,
        count: int | None = None,
        **arguments: Any,
    ) -> list[Record]:
        """Raise AssertionError unless such a job exists; see AsyncTester.assert_enqueued."""
        __tracebackhide__ = True
        found = self._run(self._tester.jobs())
        return check_enqueued(found, task, {**(payload or {}), **arguments}, queue, count)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        ended: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(call, self._loop)
        return ended.result()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _read_instant(name: str, instant: object) -> int:
    return read_instant(f"/{name}", str(render_value(instant)))
