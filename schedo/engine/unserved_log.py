"""Warns once about each task that has due jobs and no connected worker that can run them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

log = logging.getLogger("schedo.jobs")

WARN_AFTER_S = 10.0  # workers that connect again after a restart of the server take some seconds


class UnservedLog:
    """Since when each task has had such jobs."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._warned: set[str] = set()

    def note(self, waiting: Mapping[str, int], now_s: float) -> None:
        """Note the numbers of such jobs by task, as of this moment of a monotonic clock."""
        for task in self._since.keys() - waiting.keys():
            del self._since[task]
            self._warned.discard(task)
        for task, count in waiting.items():
            since = self._since.setdefault(task, now_s)
            if now_s - since >= WARN_AFTER_S and task not in self._warned:
                self._warned.add(task)
                log.warning(
                    "no connected worker can run task %s; its due jobs: at least %d;"
                    " schedo jobs why ID says what is missing",
                    task,
                    count,
                    extra={"fields": {"task": task, "jobs": count}},
                )
