"""The registry of the tasks and schedules that an application declares.

The import of an application fills its registry and starts nothing, so that a child process can read
the tasks that it has to run. The default name of a task is the name of its function, without the
module: a module has another name as a script than as an import, and jobs in the store keep the
task's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from schedo.core.built_in import BUILT_IN
from schedo.core.model import PLAIN, Options, ScheduleSpec
from schedo.tasks.arguments import Arguments
from schedo.tasks.backend import Backend
from schedo.tasks.hooks import Hooks


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A function that jobs can name, and the default options of those jobs."""

    name: str
    function: Callable[..., Any]
    arguments: Arguments
    options: Options = PLAIN
    no_retry: tuple[type[BaseException], ...] = ()

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


@dataclass(slots=True)
class Registry:
    """The tasks and schedules of one application, by their unique names."""

    tasks: dict[str, TaskSpec] = field(default_factory=dict)
    schedules: dict[str, ScheduleSpec] = field(default_factory=dict)
    hooks: Hooks = field(default_factory=Hooks)

    def add_task(self, task: TaskSpec) -> None:
        """Add the task; raise ValueError if its name is in use."""
        if task.name in BUILT_IN:
            raise ValueError(
                f"{task.name!r} is the name of a built-in task; choose another one with name="
            )
        if task.name in self.tasks:
            raise ValueError(
                f"there are two tasks named {task.name!r}; give one another name with name="
            )
        self.tasks[task.name] = task

    def add_schedule(self, schedule: ScheduleSpec) -> None:
        """Add the schedule; raise ValueError if its name is in use."""
        if schedule.name in self.schedules:
            raise ValueError(
                f"there are two schedules named {schedule.name!r}; give one another name with name="
            )
        self.schedules[schedule.name] = schedule

    def task_defaults(self) -> dict[str, Options]:
        """Return the default options of each task, which a worker sends when it registers."""
        return {name: task.options for name, task in self.tasks.items()}


class Application(Protocol):
    """The part of an application that a child process needs."""

    @property
    def registry(self) -> Registry:
        """The tasks and schedules that the application declares."""

    @property
    def store(self) -> str | None:
        """The store of its embedded use."""

    def use_backend(self, backend: Backend) -> None:
        """Use the backend for all jobs that the application's code submits, queries and cancels."""


def check_function(function: object) -> None:
    """Raise TypeError if the object cannot be a task."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"a task must be a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"a task must not be a generator, but {function!r} is one")
