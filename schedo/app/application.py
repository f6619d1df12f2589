"""The public Schedo object: declares tasks and schedules, and chooses the backend of their jobs.

A declaration starts nothing. Jobs go to the first of these backends that is available: the server
that runs this code in a child process; the engine inside `async with app`, if the object has a
store; the server at `url` or SCHEDO_URL.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from schedo.app.options import (
    ScheduleOptions,
    TaskOptions,
    make_job,
    make_schedule,
    read_task_name,
)
from schedo.app.tasks import Task
from schedo.client.options import Duration
from schedo.errors import Invalid
from schedo.tasks.arguments import Arguments
from schedo.tasks.backend import Backend, ThreadsafeBackend
from schedo.tasks.current_job import CurrentJob, to_microseconds
from schedo.tasks.hooks import OnError, as_context_manager
from schedo.tasks.registry import Registry, TaskSpec, check_function

if TYPE_CHECKING:
    from schedo.worker.http_backend import HttpBackend

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", bound=Task[..., Any, Any])
Lifespan = Callable[[Any], AbstractAsyncContextManager[object] | AsyncIterator[object]]
AroundHook = Callable[[CurrentJob], AbstractAsyncContextManager[object] | AsyncIterator[object]]
Around_ = TypeVar("Around_", bound=AroundHook)
OnError_ = TypeVar("OnError_", bound=OnError)

# Attempts at a time in the program's own loop; each plain function takes a thread.
CONCURRENCY = 100
_OWN_OPTIONS = ("name", "payload")


class TaskDecorator(Protocol):
    """Declares an async or a plain function as a task."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[object, object, T]], /
    ) -> Task[P, Coroutine[object, object, T], T]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class ScheduleDecorator(Protocol):
    """Adds a schedule to a task, or declares a function as a task first."""

    @overload
    def __call__(self, function: A, /) -> A: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[object, object, T]], /
    ) -> Task[P, Coroutine[object, object, T], T]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class Schedo:
    """The tasks and schedules of one application.

    store: an SQLite file or the URL of a PostgreSQL database, for `async with app`, which runs the
        scheduler and the worker in this event loop. No other program has the store meanwhile.
    url, token: the server to submit jobs to, for programs that only enqueue. Without a store and a
        url, the application is for `schedo serve`, or uses SCHEDO_URL and SCHEDO_TOKEN.
    concurrency: how many attempts `async with app` runs at once.
    grace: how long running attempts may take to finish when `async with app` ends.
    lifespan: an async function with one `yield`, called with this object. Each process that runs
        tasks runs the part before the `yield` before its first job, and the rest after its last.
    state: an empty namespace for what the lifespan makes, such as a pool of connections.
    prune_schedules: whether the start of `async with app` deletes the schedules in the store that
        the application once declared and no longer declares; without it, they are logged.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each property of an application
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        concurrency: int = CONCURRENCY,
        grace: Duration = "10s",
        lifespan: Lifespan | None = None,
        prune_schedules: bool = False,
    ) -> None:
        if store is not None and url is not None:
            raise Invalid("give either a store or a url, not both")
        if concurrency < 1:
            raise Invalid("concurrency must be at least 1")
        self.registry = Registry()
        self.store = None if store is None else os.fspath(store)
        self.state: Any = SimpleNamespace()
        if lifespan is not None:
            entered = as_context_manager(lifespan, "lifespan")
            self.registry.hooks.lifespan = functools.partial(entered, self)
        self._url = url
        self._token = token
        self._concurrency = concurrency
        self._is_pruning = prune_schedules
        self._grace_s = to_microseconds(grace) / 1_000_000
        self._backend: Backend | None = None
        self._close: Callable[[], Coroutine[Any, Any, None]] | None = None

    # Declaring.

    @overload
    def task(
        self, function: Callable[P, Coroutine[object, object, T]], /
    ) -> Task[P, Coroutine[object, object, T], T]: ...

    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        no_retry: tuple[type[Exception], ...] = (),
        **options: Unpack[TaskOptions],
    ) -> TaskDecorator: ...

    def task(  # type: ignore[misc]  # mypy does not match **options with an unpacked TypedDict
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        no_retry: tuple[type[Exception], ...] = (),
        **options: Any,
    ) -> Any:
        """Declare a function as a task; its default name is the function's name.

        An exception of a class in `no_retry` fails the job without a retry. The other options are
        the defaults of the task's jobs; retries, timeout, delivery, on_failure and keep also
        apply to jobs that are submitted over HTTP.
        """

        def decorate(function: Callable[..., Any]) -> Task[..., Any, Any]:
            return self._declare(function, name, no_retry, options)

        return decorate if function is None else decorate(function)

    def _declare(
        self,
        function: Callable[..., Any],
        name: str | None,
        no_retry: tuple[type[Exception], ...],
        options: Mapping[str, Any],
    ) -> Task[..., Any, Any]:
        if isinstance(function, Task):
            raise TypeError(
                f"{function!r} is already a task; put @app.cron and @app.every above @app.task"
            )
        if isinstance(function, str):
            raise TypeError(f"write @app.task(name={function!r}): name is a keyword argument")
        check_function(function)
        name = read_task_name(name or str(getattr(function, "__name__", "")))
        defaults = make_job(name, options).spec.options
        spec = TaskSpec(name, function, Arguments(name, function), defaults, no_retry)
        self.registry.add_task(spec)
        return Task(self, spec, function, options)

    def cron(
        self, expression: str, *, tz: str = "UTC", **options: Unpack[ScheduleOptions]
    ) -> ScheduleDecorator:
        """Run the task by a cron expression in the time zone: 5 fields, or 6 with seconds first.

        Put it above `@app.task`, or use it alone. The default name of the schedule is the task's
        name; `payload` has the task's arguments by name. Each start of the application stores the
        schedule again, unless it was changed by hand and the code declares it as before. A schedule
        that is removed from the code stays in the store, and each start logs it: delete it with
        `schedo schedules rm`, or start with `--prune`.
        """
        return self._schedule({"cron": expression, "tz": tz}, dict(options))

    def every(
        self, interval: str | float | timedelta, **options: Unpack[ScheduleOptions]
    ) -> ScheduleDecorator:
        """Run the task at whole multiples of the interval; see cron() for the options."""
        return self._schedule({"every": interval}, dict(options))

    def _schedule(self, rule: Mapping[str, Any], options: Mapping[str, Any]) -> ScheduleDecorator:
        own = {key: value for key, value in options.items() if key not in _OWN_OPTIONS}
        of_task = {k: v for k, v in own.items() if k in TaskOptions.__annotations__}

        def decorate(function: Callable[..., Any]) -> Task[..., Any, Any]:
            is_task = isinstance(function, Task)
            task = function if is_task else self._declare(function, None, (), of_task)
            assert isinstance(task, Task)
            payload = task.spec.arguments.write((), options.get("payload") or {})
            name = options.get("name") or task.name
            spec = make_schedule(name, task.name, payload, task.defaults, rule, own)
            self.registry.add_schedule(spec)
            return task

        return cast(ScheduleDecorator, decorate)

    def around(self, hook: Around_, /) -> Around_:
        """Run an async function with one `yield` around each attempt; its argument is the job.

        What the handler raises comes out of the `yield`. The first one declared is the outermost.
        """
        self.registry.hooks.around.append(as_context_manager(hook, "around"))
        return hook

    def on_error(self, hook: OnError_, /) -> OnError_:
        """Call a function with the job and the exception when an attempt has raised one.

        It is not called for a Snooze, a Discard or a stop. What it raises is logged.
        """
        self.registry.hooks.on_error.append(hook)
        return hook

    # The backend of the jobs.

    def use_backend(self, backend: Backend) -> None:
        """Submit jobs to this backend, which belongs to the running event loop."""
        self._backend = ThreadsafeBackend(backend)

    @property
    def is_running(self) -> bool:
        """Whether jobs go to a running server: inside `async with app`, for example."""
        return self._backend is not None

    def leave_backend(self) -> None:
        """Choose the backend again, as before use_backend."""
        self._backend = None

    def find_backend(self) -> Backend:
        """Return the backend for jobs; raise RuntimeError if there is none."""
        if self._backend is not None:
            return self._backend
        if self.store is not None:
            raise RuntimeError(
                "this Schedo has a store, but it is not running: enqueue inside `async with app:`"
            )
        return self._make_http_backend()

    def _make_http_backend(self) -> HttpBackend:
        from schedo.worker.http_backend import HttpBackend

        url = self._url or os.environ.get("SCHEDO_URL")
        if not url:
            raise RuntimeError(
                "this Schedo has no server to submit jobs to: give it a store (a file) or a url, "
                "set SCHEDO_URL, or run it with `schedo serve module:app`"
            )
        token = self._token or os.environ.get("SCHEDO_TOKEN") or None
        return HttpBackend(url, token)

    # Running.

    async def __aenter__(self) -> Self:
        if self.is_running:
            raise RuntimeError("this Schedo is already running")
        if self.store is not None:
            from schedo.app.embedded import EmbeddedServer

            embedded = EmbeddedServer(
                self.store, self.registry, self._concurrency, is_pruning=self._is_pruning
            )
            use = functools.partial(self.use_backend, embedded.backend)
            await embedded.start(use, self.leave_backend)
            self._close = functools.partial(embedded.stop, self._grace_s)
        else:
            client = self._make_http_backend()
            await client.open()
            self._close = client.close
            self.use_backend(client)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._close is not None, "entered before"
        close, self._close = self._close, None
        try:
            await close()
        finally:
            self._backend = None
