"""The Task object that `@app.task` returns: call it as a function, or enqueue it as a job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack

import msgspec

from schedo.app.handles import JobHandle
from schedo.app.options import JobOptions, make_job
from schedo.core import limits
from schedo.errors import SchedoError
from schedo.protocol.job_templates import JobTemplate
from schedo.tasks.backend import Backend, run_sync
from schedo.tasks.registry import TaskSpec
from schedo.trace_context import NO_TRACE, current_trace

P = ParamSpec("P")
R = TypeVar("R")  # what a call of the function returns: a coroutine if it is async
T = TypeVar("T")  # the result of a job


class HasBackend(Protocol):
    """The application that a task belongs to."""

    def find_backend(self) -> Backend:
        """Return the backend for jobs; raise RuntimeError if there is none."""


class NewJob(NamedTuple, Generic[T]):
    """A job for enqueue_many, with options and arguments of its own; it is not submitted yet."""

    template: JobTemplate
    payload: bytes  # JSON


class BoundTask(Generic[P, T]):
    """A task with the options of a job to enqueue."""

    def __init__(self, app: HasBackend, task: TaskSpec, template: JobTemplate) -> None:
        self._app = app
        self._task = task
        self._template = template

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Submit a job with these arguments; it is durable on return.

        Raise TypeError if the arguments do not match the task's signature, and a SchedoError if the
        server rejects the job.
        """
        backend = self._app.find_backend()
        payload = self._task.arguments.write(args, kwargs)
        (submitted,) = await backend.submit([(self._template.traced(current_trace()), payload)])
        if isinstance(submitted, SchedoError):
            raise submitted
        return JobHandle(backend, self._task.function, submitted.number, submitted.is_conflict)

    async def broadcast(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit one job for each connected worker that may run it, busy or not.

        Raise Unsatisfiable if there is none.
        """
        request = msgspec.structs.replace(self._template.request, broadcast=True)
        payload = self._task.arguments.write(args, kwargs)
        return await self._submit([(self._template._replace(request=request), payload)])

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[T]:
        """Return a job with these arguments for enqueue_many, without submitting it.

        Raise TypeError if the arguments do not match the task's signature.
        """
        return NewJob(self._template, self._task.arguments.write(args, kwargs))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Submit a job from code that is not async, in any thread; see enqueue.

        Raise RuntimeError in a thread whose event loop runs.
        """
        return run_sync(self._app.find_backend(), self.enqueue(*args, **kwargs))

    def enqueue_many_sync(
        self, calls: Iterable[Mapping[str, Any] | NewJob[T]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit many jobs from code that is not async; see enqueue_many."""
        return run_sync(self._app.find_backend(), self.enqueue_many(calls))

    async def enqueue_many(
        self, calls: Iterable[Mapping[str, Any] | NewJob[T]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit a job for each mapping of keyword arguments, up to a thousand in one commit.

        A job with options of its own, such as a unique key, is given as task.options(...).job(...).
        A rejected job has its error at its position in the list. Raise TypeError before anything is
        submitted if arguments do not match the task's signature, or a job is one of another task.
        """
        jobs = [
            call
            if isinstance(call, NewJob)
            else (self._template, self._task.arguments.write((), call))
            for call in calls
        ]
        for template, _ in jobs:
            if template is not self._template and template.request.task != self._task.name:
                raise TypeError(
                    f"a job of the task {template.request.task!r} was given to enqueue_many of"
                    f" {self._task.name!r}"
                )
        handles: list[JobHandle[T] | SchedoError] = []
        for start in range(0, len(jobs), limits.BATCH_JOBS_MAX):
            handles += await self._submit(jobs[start : start + limits.BATCH_JOBS_MAX])
        return handles

    async def _submit(
        self, jobs: Sequence[tuple[JobTemplate, bytes]]
    ) -> list[JobHandle[T] | SchedoError]:
        backend, function, trace = self._app.find_backend(), self._task.function, current_trace()
        if trace is not NO_TRACE:
            jobs = [(template.traced(trace), payload) for template, payload in jobs]
        return [
            each
            if isinstance(each, SchedoError)
            else JobHandle(backend, function, each.number, each.is_conflict)
            for each in await backend.submit(jobs)
        ]


class Task(Generic[P, R, T]):
    """A function that jobs can name. A call runs the function directly, without a job."""

    __name__: str

    def __init__(
        self,
        app: HasBackend,
        spec: TaskSpec,
        function: Callable[P, R],
        options: Mapping[str, Any],
    ) -> None:
        self._app = app
        self._function = function
        self._plain: BoundTask[P, T] = BoundTask(app, spec, make_job(spec.name, options))
        self.spec = spec
        self.defaults = options
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        return self.spec.name

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def options(self, **options: Unpack[JobOptions]) -> BoundTask[P, T]:
        """Return the task with options for the jobs to enqueue; raise Invalid for a bad option."""
        return BoundTask(self._app, self.spec, make_job(self.name, self.defaults, options))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Submit a job with these arguments; it is durable on return."""
        return await self._plain.enqueue(*args, **kwargs)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[T]:
        """Return a job with these arguments for enqueue_many; see BoundTask.job."""
        return self._plain.job(*args, **kwargs)

    async def enqueue_many(
        self, calls: Iterable[Mapping[str, Any] | NewJob[T]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit a job for each mapping of keyword arguments or job; see BoundTask.enqueue_many."""
        return await self._plain.enqueue_many(calls)

    async def broadcast(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit one job for each connected worker that may run it; see BoundTask.broadcast."""
        return await self._plain.broadcast(*args, **kwargs)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Submit a job from code that is not async; see BoundTask.enqueue_sync."""
        return self._plain.enqueue_sync(*args, **kwargs)

    def enqueue_many_sync(
        self, calls: Iterable[Mapping[str, Any] | NewJob[T]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit many jobs from code that is not async; see BoundTask.enqueue_many."""
        return self._plain.enqueue_many_sync(calls)
