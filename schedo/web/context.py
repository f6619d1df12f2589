"""The state that all handlers share: the engine, the settings and small caches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from schedo.core.built_in import may_run
from schedo.core.limits import SECOND
from schedo.core.model import Expect, Job, JobSpec, ScheduleSpec
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.engine.run_times import RunTimes
from schedo.engine.sharing import SharedCall
from schedo.errors import Invalid, ShellDisabled
from schedo.protocol.fields import read_under
from schedo.web.bytes_in_flight import BytesInFlight
from schedo.web.credentials import Credentials
from schedo.web.elsewhere import Elsewhere
from schedo.web.holding import Holding
from schedo.web.http import Request, Response
from schedo.web.limiter import WeightedSemaphore
from schedo.web.settings import WebSettings
from schedo.web.tenure import NO_TAKEOVER, Tenure

if TYPE_CHECKING:
    from schedo.web.events import EventHub
    from schedo.web.fire_maps import FireMaps

T = TypeVar("T")

_NAMES_REMEMBERED_MAX = 10_000

WATCH_AFTER_S = 0.02
STRICT_AFTER_US = 30 * SECOND  # after the start, until which workers may connect again
BATCHED_JOBS_MAX = 2_048  # of all batches that are carried out at a time
REPORTED_MAX = 1_000  # results and progress of workers that are applied at a time


class KnownWorker(NamedTuple):
    """The last client of a worker, and the worker's spec: it sends the same one every time.

    A spec that was refused is not kept.
    """

    client_id: str
    spec: WorkerSpec | None


@dataclass(slots=True)
class AppContext:
    """The HTTP side of one server."""

    engine: Engine
    settings: WebSettings
    credentials: Credentials
    keys_in_progress: set[str] = field(default_factory=set)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    schedule_names: dict[int, str] = field(default_factory=dict)
    polls: set[Callable[[], None]] = field(default_factory=set)  # each ends one open poll
    clients: dict[Callable[[], None], str] = field(default_factory=dict)  # whose polls they are
    forwarded: set[Callable[[], None]] = field(default_factory=set)  # the same at other servers
    is_stopping: bool = False  # the grace time of the clients is over
    workers: dict[str, KnownWorker] = field(default_factory=dict)
    batches: WeightedSemaphore = field(default_factory=lambda: WeightedSemaphore(BATCHED_JOBS_MAX))
    reported: WeightedSemaphore = field(default_factory=lambda: WeightedSemaphore(REPORTED_MAX))
    in_flight: BytesInFlight = field(default_factory=BytesInFlight)
    metrics: SharedCall[bytes] | None = None  # the text of /metrics
    run_times: RunTimes = field(default_factory=RunTimes)
    tenure: Tenure = NO_TAKEOVER
    events: EventHub | None = None  # made for the first stream
    events_newest: int = 0  # where the next hub begins to number its frames
    fire_maps: FireMaps | None = None  # made for the first request
    cluster: Elsewhere | None = None  # the other servers; None: there can be none
    holding: Holding | None = None  # set while requests wait for a new process

    def check_work(
        self, request: Request, spec: JobSpec, offered: Collection[str] = frozenset()
    ) -> None:
        """Refuse a job beyond the token, one that no worker may run, or a payload that is wrong.

        offered: the tasks of a worker that is not registered yet.
        """
        request.check_job(spec.queue, spec.task)
        self._check_runs(spec, offered)
        if spec.options.on_failure is not None:
            self.check_event_job(request, "/on_failure", spec.options.on_failure)

    def check_enqueued(self, spec: JobSpec) -> None:
        """Check a job of SQL as check_work does; PostgreSQL has checked who may submit it."""
        self._check_runs(spec)
        on_failure = spec.options.on_failure
        if on_failure is not None:
            read_under("/on_failure", lambda: self._check_runs(on_failure))

    def _check_runs(self, spec: JobSpec, offered: Collection[str] = frozenset()) -> None:
        if spec.task not in offered:
            self._check_task(spec.task)
        check = self.settings.payload_checks.get(spec.task)
        if check is not None:
            check(spec.payload)

    def _check_task(self, task: str) -> None:
        """Refuse a task that no worker may run, and on a strict server one that none has."""
        if task not in self.engine.tasks.built_in and not may_run(task, self.settings.permissions):
            raise ShellDisabled(
                "neither this server nor a worker may run commands; "
                "start one of them with --allow-shell"
            )
        if self.settings.is_strict and task not in self.engine.tasks and self._is_settled():
            raise Invalid.field("/task", self.engine.tasks.describe_unknown(task))

    def _is_settled(self) -> bool:
        """Whether the workers of an earlier server have had the time to connect again."""
        return self.engine.clock.now() - self.engine.metrics.began_at > STRICT_AFTER_US

    def warn_of_unknown(self, spec: JobSpec) -> list[str]:
        """Return a warning for each task, of the job or its event job, that no worker offered."""
        on_failure = spec.options.on_failure
        tasks = (spec.task,) if on_failure is None else (spec.task, on_failure.task)
        return [
            self.engine.tasks.describe_unknown(task, "; its jobs wait until a worker has it")
            for task in dict.fromkeys(tasks)
            if task not in self.engine.tasks
        ]

    def warn_of_schedule(self, spec: ScheduleSpec) -> list[str]:
        """Return the warnings about the tasks of a schedule and of its event jobs."""
        warnings = self.warn_of_unknown(spec.job) + self.warn_of_expect(spec.expect or Expect())
        return list(dict.fromkeys(warnings))

    def warn_of_expect(self, expect: Expect) -> list[str]:
        """Return the warnings about the tasks of an expectation's event jobs."""
        jobs = [job for job in (expect.on_miss, expect.on_back) if job is not None]
        return list(dict.fromkeys(text for job in jobs for text in self.warn_of_unknown(job)))

    def check_event_job(
        self, request: Request, pointer: str, spec: JobSpec, offered: Collection[str] = frozenset()
    ) -> None:
        """Check the job of an event as check_work does; its field is at the pointer."""
        read_under(pointer, lambda: self.check_work(request, spec, offered))

    def check_schedule(self, request: Request, spec: ScheduleSpec) -> None:
        """Check the jobs of a schedule and of its events as check_work does."""
        self.check_work(request, spec.job)
        if spec.expect is not None:
            self.check_expect(request, "/expect", spec.expect)

    def check_expect(self, request: Request, pointer: str, expect: Expect) -> None:
        """Check the event jobs of an expectation, whose fields are below the pointer."""
        for name, spec in (("on_miss", expect.on_miss), ("on_back", expect.on_back)):
            if spec is not None:
                self.check_event_job(request, f"{pointer}/{name}", spec)

    async def load_schedule_names(self, jobs: list[Job]) -> dict[int, str]:
        """Return the names of the jobs' schedules; they never change, so they are cached."""
        names = self.schedule_names
        for schedule_id in {job.schedule_id for job in jobs} - names.keys() - {None}:
            assert schedule_id is not None
            schedule = await self.engine.store.get_schedule(schedule_id)
            if schedule is not None:
                if len(names) >= _NAMES_REMEMBERED_MAX:
                    names.clear()
                names[schedule_id] = schedule.name
        return names

    async def run_until_drain(
        self, work: Coroutine[Any, Any, T], gone: Awaitable[None]
    ) -> T | None:
        """Return the work's result; None once the server drains or the client disconnects."""
        tasks = [
            asyncio.ensure_future(work),
            asyncio.ensure_future(self.draining.wait()),
            asyncio.ensure_future(gone),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].result() if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()

    async def run_until_disconnect(
        self,
        work: Awaitable[T],
        gone: Callable[[], Awaitable[None]],
        *,
        ends_with_drain: bool = True,
        client_id: str = "",
    ) -> T | None:
        """As run_until_drain, but cheap enough for thousands: the work runs in the caller's task.

        ends_with_drain: False if another server carries it out, which goes on: it ends later.
        client_id: of the poll of a worker, which ends when its token may not do the same any more.
        The result can arrive in the same moment as the end. It is dropped then, so work that
        reserves something must handle its cancellation.
        """
        task = asyncio.current_task()
        assert task is not None
        has_left = False

        def leave(_: object = None) -> None:
            nonlocal has_left
            if not has_left:
                has_left = True
                task.cancel()

        watch: asyncio.Future[None] | None = None

        def begin_watch() -> None:
            nonlocal watch
            watch = asyncio.ensure_future(gone())
            watch.add_done_callback(leave)

        # Most requests end before a task that watches the connection pays off.
        timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, begin_watch)
        self._list_wait(leave, ends_with_drain, client_id)
        try:
            return await work
        except asyncio.CancelledError:
            if has_left and task.uncancel() == 0:
                return None
            raise
        finally:
            self._unlist_wait(leave)
            timer.cancel()
            if watch is not None:
                watch.remove_done_callback(leave)
                watch.cancel()

    def _list_wait(self, leave: Callable[[], None], ends_with_drain: bool, client_id: str) -> None:
        (self.polls if ends_with_drain else self.forwarded).add(leave)
        if client_id:
            self.clients[leave] = client_id

    def _unlist_wait(self, leave: Callable[[], None]) -> None:
        self.polls.discard(leave)
        self.forwarded.discard(leave)
        self.clients.pop(leave, None)

    def end_streams(self) -> None:
        """End all streams of events; their clients connect again."""
        if self.events is not None:
            self.events.close()
            self.events_newest = self.events.newest + 1  # no client takes its frames for others
            self.events = None

    def end_polls(self, clients: Collection[str]) -> None:
        """End the open polls of these clients."""
        for leave in [leave for leave, client in self.clients.items() if client in clients]:
            leave()

    def drain(self) -> None:
        """End all open polls and waits: the server shuts down."""
        self.draining.set()
        self.end_streams()
        for leave in list(self.polls):
            leave()

    def end_forwarded(self) -> None:
        """End the waits for other servers, too: no client waits any longer for this one."""
        self.is_stopping = True
        for leave in list(self.forwarded):
            leave()


Handler = Callable[[AppContext, Request], Awaitable[Response]]
