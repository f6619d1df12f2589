"""The parts of the specs of remote workers: their tasks, queues, labels, resources and defaults.

They take most of the memory of a worker. The workers of a fleet share them, as
`web/handlers/work.py` sees to it, and a shared part counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from schedo.core.worker_pool import WorkerSpec

WORKER_NAMES_MAX = 65_536  # of all workers, each at most 128 characters


class SpecParts:
    """How many names the registered workers have together."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()  # by the identity of the part
        self._names = 0

    def has_room(self, spec: WorkerSpec, instead_of: WorkerSpec | None) -> bool:
        """Whether the spec fits with all others, in place of the worker's old one."""
        if instead_of is not None:
            self.remove(instead_of)
        new = {id(part): len(part) for part in _parts(spec) if id(part) not in self._users}
        found = self._names + sum(new.values()) <= WORKER_NAMES_MAX
        if instead_of is not None:
            self.add(instead_of)
        return found

    def add(self, spec: WorkerSpec) -> None:
        """Count the parts of a worker. It must stay alive until it is removed."""
        for part in _parts(spec):
            self._users[id(part)] += 1
            if self._users[id(part)] == 1:
                self._names += len(part)

    def remove(self, spec: WorkerSpec) -> None:
        """Subtract the parts that no other worker has."""
        for part in _parts(spec):
            self._users[id(part)] -= 1
            if not self._users[id(part)]:
                del self._users[id(part)]
                self._names -= len(part)


def _parts(spec: WorkerSpec) -> Iterator[Collection[str]]:
    named = (spec.tasks, spec.queues, spec.isolated_tasks)
    for part in (*named, spec.labels, spec.resources, spec.task_defaults):
        if part:
            yield part
