"""How many attempts a child process gets at a time, of each kind of task.

An async task takes little of a process, but a plain function takes a thread. So a child can be two
workers for the engine: one for its async tasks with many slots, and one for its plain functions.

Many slots are good only while the child starts what it gets. If handlers keep its event loop busy,
leases wait in the child, although another child may be idle. So a child begins with few slots for
async tasks. They are doubled while it starts its leases, and halved while leases wait there.
"""

from __future__ import annotations

from dataclasses import replace

from schedo.core.worker_pool import WorkerSpec
from schedo.protocol.frames import Attach

FIRST_ASYNC_SLOTS = 32


class ChildSlots:
    """The workers of one child, and their slots at present."""

    def __init__(self, spec: WorkerSpec, async_slots: int) -> None:
        """spec: without tasks; its slots are for all tasks, or for the plain functions.

        async_slots: the most slots for async tasks; 0: these use the slots of the spec.
        """
        self.worker_id = spec.id
        self._async_slots_max = async_slots
        self._async_slots = min(async_slots, FIRST_ASYNC_SLOTS)
        self._leases_expected = 0  # how many leases the child should have started by now
        self._async_spec: WorkerSpec | None = None
        self._spec: WorkerSpec | None = spec

    def set_tasks(self, attach: Attach) -> None:
        """Set the tasks, which the child names when it attaches."""
        assert self._spec is not None, "a child attaches once"
        spec = replace(self._spec, tasks=frozenset(attach.tasks), task_defaults=attach.tasks)
        plain_tasks = frozenset(attach.tasks) - attach.async_tasks
        self._spec = spec
        if self._async_slots_max and attach.async_tasks:
            self._async_spec = replace(spec, tasks=attach.async_tasks)
            self._spec = None
            if plain_tasks:
                self._spec = replace(spec, id=f"{spec.id}-threads", tasks=plain_tasks)

    @property
    def workers(self) -> list[WorkerSpec]:
        """The workers with their present slots."""
        workers = [] if self._spec is None else [self._spec]
        if self._async_spec is not None:
            workers.append(replace(self._async_spec, slots=self._async_slots))
        return workers

    def adapt(self, leases_sent: int, leases_started: int) -> bool:
        """Halve the slots for async tasks if leases wait in the child; else see grow.

        A lease waits if it was sent before the last call and is not started. Return whether the
        slots changed. They never become fewer than those of the other tasks.
        """
        is_late = leases_started < self._leases_expected
        self._leases_expected = leases_sent
        if is_late and self._async_spec is not None:
            return self._resize(self._async_slots // 2)
        return self.grow(leases_sent, leases_started)

    def grow(self, leases_sent: int, leases_started: int) -> bool:
        """Double the slots for async tasks if few leases wait; return whether they changed."""
        if self._async_spec is None or not leases_sent:
            return False
        are_few = 2 * (leases_sent - leases_started) < self._async_slots
        return are_few and self._resize(self._async_slots * 2)

    def _resize(self, slots: int) -> bool:
        assert self._async_spec is not None, "async tasks have slots of their own"
        before, most = self._async_slots, self._async_slots_max
        self._async_slots = min(max(slots, self._async_spec.slots), most)
        return self._async_slots != before
