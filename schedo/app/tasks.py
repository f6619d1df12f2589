"""The Task object that `@app.task` returns: call it as a function, or enqueue it as a job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, get_type_hints

import msgspec

from schedo.app.handles import JobHandle
from schedo.app.options import JobOptions, make_job
from schedo.core import limits
from schedo.errors import SchedoError
from schedo.protocol.jobs import JobTemplate, SubmittedJob
from schedo.tasks.arguments import decode_custom
from schedo.tasks.backend import Backend
from schedo.tasks.registry import TaskSpec

P = ParamSpec("P")
R = TypeVar("R")  # what a call of the function returns: a coroutine if it is async
T = TypeVar("T")  # the result of a job


class HasBackend(Protocol):
    """The application that a task belongs to."""

    def find_backend(self) -> Backend:
        """Return the backend for jobs; raise RuntimeError if there is none."""


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
        (submitted,) = await backend.submit(self._template, [payload])
        handle = self._handle(backend, submitted)
        if isinstance(handle, SchedoError):
            raise handle
        return handle

    async def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit a job for each mapping of keyword arguments, up to a thousand in one commit.

        A rejected job has its error at its position in the list.
        """
        backend = self._app.find_backend()
        payloads = [self._task.arguments.write((), call) for call in calls]
        handles: list[JobHandle[T] | SchedoError] = []
        for start in range(0, len(payloads), limits.BATCH_JOBS_MAX):
            part = payloads[start : start + limits.BATCH_JOBS_MAX]
            results = await backend.submit(self._template, part)
            handles += [self._handle(backend, submitted) for submitted in results]
        return handles

    def _handle(
        self, backend: Backend, submitted: SubmittedJob | SchedoError
    ) -> JobHandle[T] | SchedoError:
        if isinstance(submitted, SchedoError):
            return submitted
        return JobHandle(backend, submitted, functools.partial(_read_result, self._task.function))


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

    async def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Submit a job for each mapping of keyword arguments; see BoundTask.enqueue_many."""
        return await self._plain.enqueue_many(calls)


def _read_result(function: Callable[..., T], result: Any) -> T:
    """Convert the result to the annotated type, or return plain JSON data if that fails."""
    wanted = _find_return_type(function)
    if wanted is None:
        return cast(T, result)
    try:
        return cast(T, msgspec.convert(result, wanted, str_keys=True, dec_hook=decode_custom))
    except (msgspec.ValidationError, TypeError):
        return cast(T, result)


@functools.lru_cache(maxsize=1_024)
def _find_return_type(function: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(function, include_extras=True).get("return")
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None
