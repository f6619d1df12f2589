"""Worker groups: lanes whose jobs the same workers can take share one group.

All lanes of a group can start a job at this moment, or none of them can. So a group is what a lane
waits for: the choice of the next job looks at the groups that have room and never at the lanes of
the others, however many there are.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from typing import TYPE_CHECKING

from schedo.core.lazy_heap import Key, LazyHeap
from schedo.core.model import ReadyKey
from schedo.core.requirements import Preference, Requirements, ResourceAmounts

if TYPE_CHECKING:
    from schedo.core.queue_states import Section
    from schedo.core.worker_pool import Worker

KINDS_KNOWN_MAX = 4_096
IDLE_GROUPS_MAX = 64
_LATER = 1 << 62  # after every assignment that was made
_GroupKey = tuple[frozenset[int], ResourceAmounts, tuple[Preference, ...]]


class WorkerGroup:
    """The workers that serve some lanes, best first: the preferred one, then the one with the
    most free slots, then the one that was assigned something longest ago."""

    __slots__ = (
        *("_heap", "_members", "_resources", "_available"),
        *("kinds", "key_count", "requirements", "waiting"),
    )

    def __init__(
        self, requirements: Requirements | None, available: dict[WorkerGroup, None]
    ) -> None:
        self.requirements = requirements
        self.kinds: set[ReadyKey] = set()  # of lanes; see WorkerGroups
        self.key_count = 0  # how many of them have jobs
        # Those lanes, one section for each queue, and the queue whose turn comes first goes first.
        self.waiting: LazyHeap[Section] = LazyHeap(attrgetter("key"))
        self._available = available
        self._resources = requirements is not None and bool(requirements.resources)
        self._members: dict[Worker, float] = {}  # the more the route prefers it, the smaller
        self._heap: LazyHeap[Worker] = LazyHeap(self._rank)

    @property
    def members(self) -> list[Worker]:
        """The workers, busy ones included, in the order in which they were attached."""
        return sorted(self._members, key=attrgetter("number"))

    @property
    def key(self) -> _GroupKey:
        """What no other group has in common with this one."""
        resources, prefer = _demand(self.requirements)
        return frozenset(worker.number for worker in self._members), resources, prefer

    def add(self, worker: Worker) -> None:
        """Take the worker in."""
        requirements = self.requirements
        self._members[worker] = (
            0.0 if requirements is None else -requirements.preference_score(worker.spec.labels)
        )
        worker.groups[self] = None
        self.mark_available(worker)

    def remove(self, worker: Worker) -> None:
        """Let go of the worker."""
        self._members.pop(worker, None)
        worker.groups.pop(self, None)
        self._heap.discard(worker)

    def mark_available(self, worker: Worker) -> None:
        """Note that the worker may have room, or more of it than before."""
        bound = (self._members[worker], -worker.free, -worker.last_assigned, worker.number)
        if worker.free > 0 and self._heap.push(worker, bound):
            self._available[self] = None

    def enqueue(self, section: Section, key: Key) -> None:
        """Let the section's jobs start when its queue's turn, at least this one, has come."""
        if self.waiting.push(section, key):
            self._available[self] = None

    def first(self) -> Worker | None:
        """Return the worker that is to take the next job, or None if none has room."""
        return self._heap.first()

    def share(self, count: int) -> list[Worker]:
        """Return who is to take the next jobs, at most count, while there is room.

        Each goes to the best worker, given those before it.
        """
        best = self._heap.first()
        if best is None:
            return []
        if count == 1 or self.requirements is not None:
            return [best]
        if len(self._members) == 1:
            return [best] * min(count, best.free)
        return self._draw(count)

    def _draw(self, count: int) -> list[Worker]:
        chosen: list[Worker] = []
        drawn: list[Worker] = []
        candidates: list[tuple[int, int, int, Worker]] = []  # the drawn ones as they will stand
        while len(chosen) < count:
            worker = self._heap.first()
            if worker is not None:
                entry = (-worker.free, -worker.last_assigned, worker.number, worker)
                if not candidates or entry < candidates[0]:
                    drawn.append(worker)
                    heappush(candidates, entry)
                    self._heap.pop()
                    continue
            if not candidates:
                break
            free, _, number, worker = candidates[0]
            chosen.append(worker)
            if free == -1:
                heappop(candidates)
            else:
                heapreplace(candidates, (free + 1, _LATER + len(chosen), number, worker))
        for worker in drawn:
            self.mark_available(worker)
        return chosen

    def _rank(self, worker: Worker) -> Key | None:
        if worker.free <= 0 or (self._resources and worker.capacity_for(self.requirements) <= 0):
            return None
        return self._members[worker], -worker.free, -worker.last_assigned, worker.number


class WorkerGroups:
    """The groups of the attached workers.

    What decides which workers serve a lane is its kind: the lane, without its queue while no worker
    names the queues that it serves.
    """

    def __init__(self) -> None:
        # The groups in which a worker may have room and a lane may have a job that can start.
        self.available: dict[WorkerGroup, None] = {}
        self.freed: set[Worker] = set()  # those whose room may have grown since `note_freed`
        self.generation = 0  # grows when every lane must look for its group anew
        self._workers: dict[Worker, None] = {}
        self._naming_queues = 0  # how many of them do
        self._groups: dict[_GroupKey, WorkerGroup] = {}
        self._by_kind: dict[ReadyKey, WorkerGroup] = {}
        self._groups_max = IDLE_GROUPS_MAX
        self._kinds_max = KINDS_KNOWN_MAX

    def find(self, ready_key: ReadyKey) -> WorkerGroup:
        """Return the lane's group."""
        kind = (
            ready_key
            if self._naming_queues
            else ReadyKey("", ready_key.task, ready_key.isolated, ready_key.requirements)
        )
        group = self._by_kind.get(kind)
        if group is None:
            if len(self._by_kind) >= self._kinds_max:
                self._kinds_max = max(KINDS_KNOWN_MAX, 2 * self._count_keys())
                self._clear()
            group = self._by_kind[kind] = self._find_or_make(kind)
            group.kinds.add(kind)
        return group

    def note_freed(self) -> None:
        """Let the groups know of workers whose room has grown."""
        for worker in self.freed:
            for group in worker.groups:
                group.mark_available(worker)
        self.freed.clear()

    def admit(self, worker: Worker) -> None:
        """Put a worker into the groups whose lanes it serves."""
        self._workers[worker] = None
        if worker.spec.queues is not None:
            self._naming_queues += 1
            if self._naming_queues == 1:
                self._clear()
                return
        serves = worker.spec.serves
        joined = []
        for group in self._groups.values():
            served = sum(map(serves, group.kinds))
            if served == len(group.kinds):
                joined.append(group)
            elif served:  # it divides the lanes of the group
                self._clear()
                return
        for group in joined:
            group.add(worker)
        self._refile()

    def dismiss(self, worker: Worker) -> None:
        """Take a worker out of all groups."""
        if worker not in self._workers:
            return
        del self._workers[worker]
        for group in list(worker.groups):
            group.remove(worker)
        self._naming_queues -= worker.spec.queues is not None
        self._refile()

    def _refile(self) -> None:
        """Find the groups by their present workers; if two have the same ones, begin anew."""
        filed = {group.key: group for group in self._groups.values()}
        if len(filed) < len(self._groups):
            self._clear()
        else:
            self._groups = filed

    def _find_or_make(self, kind: ReadyKey) -> WorkerGroup:
        members = [worker for worker in self._workers if worker.spec.serves(kind)]
        key = (frozenset(worker.number for worker in members), *_demand(kind.requirements))
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._groups_max:
                self._evict_idle()
            group = self._groups[key] = WorkerGroup(kind.requirements, self.available)
            for worker in members:
                group.add(worker)
        return group

    def _evict_idle(self) -> None:
        """Let go of groups without jobs, for each release of a slot is told to all groups."""
        idle = [key for key, group in self._groups.items() if not group.key_count]
        for key in idle:
            group = self._groups.pop(key)
            self.available.pop(group, None)
            for kind in group.kinds:
                del self._by_kind[kind]
            for worker in group.members:
                group.remove(worker)
        self._groups_max = IDLE_GROUPS_MAX + 2 * len(self._groups)

    def _clear(self) -> None:
        self.generation += 1
        self._groups.clear()
        self._by_kind.clear()
        self.available.clear()
        for worker in self._workers:
            worker.groups.clear()

    def _count_keys(self) -> int:
        return sum(group.key_count for group in self._groups.values())


def _demand(requirements: Requirements | None) -> tuple[ResourceAmounts, tuple[Preference, ...]]:
    return ((), ()) if requirements is None else (requirements.resources, requirements.prefer)
