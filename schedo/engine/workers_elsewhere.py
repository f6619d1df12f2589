"""What the other servers of a cluster have last said of their workers and of jobs that wait here.

They are asked once a second while there are such jobs (`cluster/unserved.py`). So what shows these
jobs waits for no other server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schedo.core.model import ReadyKey
from schedo.core.remote_reasons import ALONE, Others


class WorkersElsewhere:
    """The workers of the other servers; a server alone knows that there are none."""

    def __init__(self) -> None:
        self._waiting: Mapping[ReadyKey, Others] = {}
        self._unserved: Collection[ReadyKey] | None = None  # None: there is no other server

    def note(
        self, waiting: Mapping[ReadyKey, Others], unserved: Collection[ReadyKey] | None
    ) -> None:
        """Note what they say of jobs that wait for long, and which jobs none of them can run."""
        self._waiting, self._unserved = waiting, unserved

    def find(self, ready_key: ReadyKey) -> Others:
        """Return what they say about a job that waits for long."""
        return self._waiting.get(ready_key, ALONE)

    def count_unserved(self, counts: Mapping[ReadyKey, int]) -> dict[str, int]:
        """Return the numbers of jobs that no worker of the cluster can run, by task.

        counts: those that none of this server can run. They count once the others were asked.
        """
        by_task: dict[str, int] = {}
        for key, count in counts.items():
            if self._unserved is None or key in self._unserved:
                by_task[key.task] = by_task.get(key.task, 0) + count
        return by_task
