"""The tasks that any worker has offered since the start of the server, and the built-in ones."""

from __future__ import annotations

from collections.abc import Collection

from schedo.core.built_in import BUILT_IN
from schedo.suggestions import suggest

_NAMES_MAX = 20_000  # beyond that, every task counts as known
_HINTS_MAX = 256  # remembered: to compare a name with all others costs more than a submit


class KnownTasks:
    """The names of tasks, so that a misspelt one is found when a job is submitted.

    A task stays known when its workers leave: they may be restarting.
    """

    def __init__(self) -> None:
        self._names = set(BUILT_IN)
        self._is_any = False  # a worker runs every task
        self.built_in: set[str] = set()  # those of the built-in tasks that a worker has offered
        self._hints: dict[str, str] = {}  # by unknown task

    def note(self, tasks: Collection[str] | None) -> None:
        """Note the tasks of a worker; None: it runs every task."""
        self.built_in |= BUILT_IN.keys() & (tasks or ())
        self._hints.clear()
        if tasks is None or len(self._names) > _NAMES_MAX:
            self._is_any = True
        else:
            self._names.update(tasks)

    def __contains__(self, task: str) -> bool:
        return task in self._names or self._is_any

    def list(self, limit: int) -> list[str]:
        """Return the first names in order."""
        return sorted(self._names)[:limit]

    def describe_unknown(self, task: str, consequence: str = "") -> str:
        """Return in one sentence that the task is unknown, with a similar name if there is one."""
        hint = self.suggest(task)
        return f"no application and no worker has a task {task!r}{consequence}{hint}"

    def suggest(self, task: str) -> str:
        """Return the hint at a similar task, or nothing if the task is known."""
        if task in self:
            return ""
        hint = self._hints.get(task)
        if hint is None:
            if len(self._hints) >= _HINTS_MAX:
                self._hints.clear()
            hint = self._hints[task] = suggest(task, self._names)
        return hint
