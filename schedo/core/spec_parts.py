"""The parts of the specs of remote workers: their tasks, queues, labels, resources and defaults.

They take most of the memory of a worker. The workers of a fleet share them, as
`web/handlers/work.py` sees to it, and a shared part counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from schedo.core.limits import EVENT_JOB_BYTES_MAX
from schedo.core.model import Options
from schedo.core.worker_pool import WorkerSpec

SPECS_BYTES_MAX = 8_388_608  # of all workers
TEXT_BYTES = 128  # of a text in a set, besides its characters


class SpecParts:
    """How many bytes the specs of the registered workers take together."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()  # by the identity of the part
        self._bytes = 0

    def has_room(self, spec: WorkerSpec, instead_of: WorkerSpec | None) -> bool:
        """Whether the spec fits with all others, in place of the worker's old one."""
        if instead_of is not None:
            self.remove(instead_of)
        new = {id(part): _measure(part) for part in _parts(spec) if id(part) not in self._users}
        found = self._bytes + sum(new.values()) <= SPECS_BYTES_MAX
        if instead_of is not None:
            self.add(instead_of)
        return found

    def add(self, spec: WorkerSpec) -> None:
        """Count the parts of a worker. It must stay alive until it is removed."""
        for part in _parts(spec):
            self._users[id(part)] += 1
            if self._users[id(part)] == 1:
                self._bytes += _measure(part)

    def remove(self, spec: WorkerSpec) -> None:
        """Subtract the parts that no other worker has."""
        for part in _parts(spec):
            self._users[id(part)] -= 1
            if not self._users[id(part)]:
                del self._users[id(part)]
                self._bytes -= _measure(part)


def _parts(spec: WorkerSpec) -> Iterator[Collection[str]]:
    named = (spec.tasks, spec.queues, spec.isolated_tasks)
    for part in (*named, spec.labels, spec.resources, spec.task_defaults):
        if part:
            yield part


def _measure(part: Collection[str]) -> int:
    """Return about the bytes that the part takes."""
    values = [*part, *part.values()] if isinstance(part, Mapping) else part
    return sum(map(_measure_value, values)) + TEXT_BYTES * len(values)


def _measure_value(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    has_event_job = isinstance(value, Options) and value.on_failure is not None
    return EVENT_JOB_BYTES_MAX if has_event_job else 0
