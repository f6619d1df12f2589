"""The hooks of an application: the lifespan of a worker process, and code around each attempt."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from schedo.errors import SchedoError
from schedo.tasks.current_job import CurrentJob

Around = Callable[[CurrentJob], AbstractAsyncContextManager[object]]
OnError = Callable[[CurrentJob, BaseException], Awaitable[object] | object]

log = logging.getLogger("schedo.worker")


class LifespanFailed(SchedoError):
    """The application's lifespan raised before its `yield`, so that no job can run."""

    code = "lifespan-failed"


@dataclass(slots=True)
class Hooks:
    """The hooks that an application declares."""

    lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None
    around: list[Around] = field(default_factory=list)
    on_error: list[OnError] = field(default_factory=list)

    @property
    def has_attempt_hooks(self) -> bool:
        """Whether an attempt needs more than the call of its handler."""
        return bool(self.around or self.on_error)

    async def report(self, job: CurrentJob, error: BaseException) -> None:
        """Call the on_error hooks; what they raise is logged."""
        for hook in self.on_error:
            try:
                waiting = hook(job, error)
                if inspect.isawaitable(waiting):
                    await waiting
            except (Exception, SystemExit, KeyboardInterrupt):  # not the stop of the attempt
                log.exception("job %s of task %s: its on_error hook failed", job.id, job.task)


def as_context_manager(hook: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function whose result is an async context manager; raise TypeError."""
    if inspect.isasyncgenfunction(hook):
        return contextlib.asynccontextmanager(hook)
    if inspect.iscoroutinefunction(hook) or inspect.isgeneratorfunction(hook) or not callable(hook):
        raise TypeError(f"{name} must be an async function with one `yield`, not {hook!r}")
    return hook


@contextlib.asynccontextmanager
async def running_lifespan(hooks: Hooks) -> AsyncIterator[None]:
    """Run the startup of the application, and its shutdown at the end of the block.

    Raise LifespanFailed if the startup fails. An error of the shutdown is logged.
    """
    if hooks.lifespan is None:
        yield
        return
    try:
        lifespan = hooks.lifespan()
        await lifespan.__aenter__()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise LifespanFailed(f"the startup of the application failed: {reason}") from error
    try:
        yield
    finally:
        try:
            await lifespan.__aexit__(None, None, None)
        except Exception:
            log.exception("the shutdown of the application failed")
