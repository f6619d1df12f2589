"""Loads the code of the built-in tasks, which core/built_in.py lists.

The module schedo/tasks/<name>/task.py of a task has two functions: `check_payload` decodes a
payload or raises Invalid, and `make_runner` makes the runner of one worker.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from schedo.core.built_in import BUILT_IN
from schedo.tasks.runner import BuiltInRunner

if TYPE_CHECKING:
    from schedo.tasks.shell.orphans import Orphans


@dataclass(frozen=True, kw_only=True)
class RunnerSettings:
    """The settings of a worker that the runners of the built-in tasks need."""

    user_agent: str
    webhook_allow: Sequence[str] = ()  # private targets of http jobs
    webhook_secrets: Mapping[str, str] = field(default_factory=dict)
    output_dir: Path | None = None  # for the complete output of commands
    orphans: Orphans | None = None  # the list of running commands


class TaskModule(Protocol):
    """The module of a built-in task."""

    @property
    def check_payload(self) -> Callable[[bytes], object]:
        """Decode the payload, or raise Invalid."""

    @property
    def make_runner(self) -> Callable[[RunnerSettings], BuiltInRunner]:
        """Return the runner of one worker."""


def load_task(name: str) -> TaskModule:
    """Return the module of the built-in task."""
    module: Any = importlib.import_module(f"schedo.tasks.{name}.task")
    loaded: TaskModule = module
    return loaded


def make_runners(names: Iterable[str], settings: RunnerSettings) -> dict[str, BuiltInRunner]:
    """Return the runners of those of the tasks that are built in."""
    return {name: load_task(name).make_runner(settings) for name in names if name in BUILT_IN}


def payload_checks() -> dict[str, Callable[[bytes], object]]:
    """Return the payload check of each built-in task."""
    return {name: load_task(name).check_payload for name in BUILT_IN}
