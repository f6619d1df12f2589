"""The tasks and schedules that an application declares.

Importing an application fills its registry and starts nothing, so that a child process can read
what it is to run. A task is named after its function unless it is given a name: module names differ
between a script and a served module, and the name lies in the store for as long as the job does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from schedo.core.model import PLAIN, Options, ScheduleSpec
from schedo.tasks.arguments import Arguments
from schedo.tasks.backend import Backend

BUILT_IN = frozenset({"shell", "http"})


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One function that jobs can name, and what holds for jobs that do not say otherwise."""

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
    """What one application declares; names are unique."""

    tasks: dict[str, TaskSpec] = field(default_factory=dict)
    schedules: dict[str, ScheduleSpec] = field(default_factory=dict)

    def add_task(self, task: TaskSpec) -> None:
        """Add the task; raise ValueError for a name that is taken."""
        if task.name in BUILT_IN:
            raise ValueError(f"the task name {task.name!r} is built in; choose another with name=")
        if task.name in self.tasks:
            raise ValueError(
                f"there are two tasks named {task.name!r}; give one another name with name="
            )
        self.tasks[task.name] = task

    def add_schedule(self, schedule: ScheduleSpec) -> None:
        """Add the schedule; raise ValueError for a name that is taken."""
        if schedule.name in self.schedules:
            raise ValueError(
                f"there are two schedules named {schedule.name!r}; give one another name with name="
            )
        self.schedules[schedule.name] = schedule

    def task_defaults(self) -> dict[str, Options]:
        """Return the options of each task, as a worker announces them."""
        return {name: task.options for name, task in self.tasks.items()}


class Application(Protocol):
    """An application, as the child process that runs its tasks sees it."""

    @property
    def registry(self) -> Registry:
        """The tasks and schedules it declares."""

    def use_backend(self, desk: Backend) -> None:
        """Send what its code enqueues, asks and cancels to this desk."""


def check_function(function: object) -> None:
    """Raise TypeError for what cannot be a task."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"a task is a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"a task returns once, but {function!r} is a generator")
