"""The public object: declares tasks and schedules, and knows where its jobs go.

Declaring starts nothing. Jobs go to the first of these that is there: the server that runs this
code in a child process; the engine inside `async with app`, when the object names a store; the
server at `url`, or at SCHEDO_URL.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from schedo.app.options import Duration, ScheduleOptions, TaskOptions, make_job, make_schedule
from schedo.app.tasks import Task
from schedo.errors import Invalid
from schedo.protocol.fields import read_name
from schedo.tasks.arguments import Arguments
from schedo.tasks.backend import Backend, ThreadsafeBackend
from schedo.tasks.current_job import to_microseconds
from schedo.tasks.registry import Registry, TaskSpec, check_function

if TYPE_CHECKING:
    from schedo.worker.http_backend import HttpBackend

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", bound=Task[..., Any, Any])

CONCURRENCY = (
    100  # attempts at a time in the program's own loop; plain functions take a thread each
)
_OWN_OPTIONS = ("name", "payload")


class TaskDecorator(Protocol):
    """Makes a task of an async or of a plain function."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[object, object, T]], /
    ) -> Task[P, Coroutine[object, object, T], T]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class ScheduleDecorator(Protocol):
    """Adds a schedule to a task, or makes a task of a function first."""

    @overload
    def __call__(self, function: A, /) -> A: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[object, object, T]], /
    ) -> Task[P, Coroutine[object, object, T], T]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class Schedo:
    """Tasks and schedules of one application.

    `store` is a file, for use as `async with app`: timers and workers then run in this event loop.
    `url` and `token` name a server for programs that only enqueue. With neither, the application
    is for `schedo serve`, or takes SCHEDO_URL and SCHEDO_TOKEN.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        concurrency: int = CONCURRENCY,
        grace: Duration = "10s",
    ) -> None:
        if store is not None and url is not None:
            raise Invalid("give a store or a url, not both")
        if concurrency < 1:
            raise Invalid("concurrency must be at least 1")
        self.registry = Registry()
        self._store = None if store is None else os.fspath(store)
        self._url = url
        self._token = token
        self._concurrency = concurrency
        self._grace_s = to_microseconds(grace) / 1_000_000
        self._desk: Backend | None = None
        self._leave: Callable[[], Coroutine[Any, Any, None]] | None = None

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
        """Make a task of a function, named after it unless a name is given.

        An exception of a class in `no_retry` fails the job at once. The other options are the
        defaults of its jobs; retry, timeout and delivery also hold for jobs that come over HTTP.
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
            raise TypeError(f"{function!r} is a task; put @app.cron and @app.every above @app.task")
        if isinstance(function, str):
            raise TypeError(f"write @app.task(name={function!r}): the name is not positional")
        check_function(function)
        name = read_name("/name", name or str(getattr(function, "__name__", "")))
        defaults = make_job(name, options).spec.options
        spec = TaskSpec(name, function, Arguments(name, function), defaults, no_retry)
        self.registry.add_task(spec)
        return Task(self, spec, function, options)

    def cron(
        self, expression: str, *, tz: str = "UTC", **options: Unpack[ScheduleOptions]
    ) -> ScheduleDecorator:
        """Run the task by a cron expression in the time zone: 5 fields, or 6 with seconds first.

        Stands above `@app.task`, or alone. The schedule has the task's name unless it is given
        another; `payload` holds the arguments by name. Put again at each start, and left in the
        store when it is taken out of the code: delete it there.
        """
        return self._schedule({"cron": expression, "tz": tz}, dict(options))

    def every(
        self, interval: str | float | timedelta, **options: Unpack[ScheduleOptions]
    ) -> ScheduleDecorator:
        """Run the task at whole multiples of the interval; all else as for cron."""
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

    # Where jobs go.

    def use_backend(self, desk: Backend) -> None:
        """Send jobs to this desk, which belongs to the running event loop."""
        self._desk = ThreadsafeBackend(desk)

    def find_backend(self) -> Backend:
        """Return where jobs are handed in now; raise RuntimeError if nowhere."""
        if self._desk is not None:
            return self._desk
        if self._store is not None:
            raise RuntimeError(
                "this Schedo has a store of its own: enqueue inside `async with app:`"
            )
        return self._make_http_backend()

    def _make_http_backend(self) -> HttpBackend:
        from schedo.worker.http_backend import HttpBackend

        url = self._url or os.environ.get("SCHEDO_URL")
        if not url:
            raise RuntimeError(
                "this Schedo has nowhere to put jobs: give it a store (a file) or a url, set "
                "SCHEDO_URL, or run it with `schedo serve module:app`"
            )
        token = self._token or os.environ.get("SCHEDO_TOKEN") or None
        return HttpBackend(url, token)

    # Running.

    async def __aenter__(self) -> Self:
        if self._desk is not None:
            raise RuntimeError("this Schedo is running already")
        if self._store is not None:
            from schedo.app.embedded import EmbeddedServer

            embedding = EmbeddedServer(self._store, self.registry, self._concurrency)
            await embedding.start()
            self._leave = functools.partial(embedding.stop, self._grace_s)
            self.use_backend(embedding.desk)
        else:
            client = self._make_http_backend()
            await client.open()
            self._leave = client.close
            self.use_backend(client)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._leave is not None, "entered before"
        leave, self._leave = self._leave, None
        try:
            await leave()
        finally:
            self._desk = None
