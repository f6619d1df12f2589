"""A task as its own code sees it: call it like the function it is, or enqueue it as a job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, get_type_hints

import msgspec

from schedo.app.handles import JobHandle
from schedo.app.options import JobOptions, make_job
from schedo.core import limits
from schedo.errors import SchedoError
from schedo.protocol.jobs import JobTemplate
from schedo.tasks.arguments import decode_custom
from schedo.tasks.backend import Backend, SubmittedJob
from schedo.tasks.registry import TaskSpec

P = ParamSpec("P")
R = TypeVar("R")  # what calling the function returns: for an async one, a coroutine
T = TypeVar("T")  # what a job of it results in


class HasBackend(Protocol):
    """The application that a task belongs to."""

    def find_backend(self) -> Backend:
        """Return where jobs are handed in now; raise if nowhere."""


class BoundTask(Generic[P, T]):
    """A job in the making: a task and the options of this job."""

    def __init__(self, app: HasBackend, task: TaskSpec, template: JobTemplate) -> None:
        self._app = app
        self._task = task
        self._template = template

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Hand in a job with these arguments; it is durable on return.

        Raise TypeError if the arguments do not fit, and a SchedoError if the job is refused.
        """
        desk = self._app.find_backend()
        payload = self._task.arguments.write(args, kwargs)
        (answer,) = await desk.submit(self._template, [payload])
        handle = self._handle(desk, answer)
        if isinstance(handle, SchedoError):
            raise handle
        return handle

    async def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Hand in a job for each mapping of keyword arguments, a thousand in one commit.

        A job that is refused has its error in its place.
        """
        desk = self._app.find_backend()
        payloads = [self._task.arguments.write((), call) for call in calls]
        handles: list[JobHandle[T] | SchedoError] = []
        for start in range(0, len(payloads), limits.BATCH_JOBS_MAX):
            part = payloads[start : start + limits.BATCH_JOBS_MAX]
            answers = await desk.submit(self._template, part)
            handles += [self._handle(desk, answer) for answer in answers]
        return handles

    def _handle(
        self, desk: Backend, answer: SubmittedJob | SchedoError
    ) -> JobHandle[T] | SchedoError:
        if isinstance(answer, SchedoError):
            return answer
        return JobHandle(desk, answer, functools.partial(_read_result, self._task.function))


class Task(Generic[P, R, T]):
    """A function that jobs can name. Calling it runs the function here and now."""

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
        """Return the task with options for one job or more; raise Invalid for a bad one."""
        return BoundTask(self._app, self.spec, make_job(self.name, self.defaults, options))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Hand in a job with these arguments; it is durable on return."""
        return await self._plain.enqueue(*args, **kwargs)

    async def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]]
    ) -> list[JobHandle[T] | SchedoError]:
        """Hand in a job for each mapping of keyword arguments; see Order.enqueue_many."""
        return await self._plain.enqueue_many(calls)


def _read_result(function: Callable[..., T], result: Any) -> T:
    """Return the result as the annotation says, or as plain JSON data where it cannot be that."""
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
