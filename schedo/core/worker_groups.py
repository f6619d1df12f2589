"""Worker groups: all ready keys whose jobs the same workers can run share one group.

At any moment, either all ready keys of a group can start a job or none can. So the choice of the
next job looks only at the groups that have an available worker, and never at the ready keys of the
other groups, however many these are.
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
UNSERVED_SAMPLED = 100
_LATER = 1 << 62  # after every assignment that was made
_Standing = tuple[bool, float]  # whether it polls another server; the negative preference score
_GroupKey = tuple[frozenset[int], ResourceAmounts, tuple[Preference, ...], bool]


class WorkerGroup:
    """The workers that serve the same ready keys, best first.

    The best worker is one that polls this server itself, then the preferred one, then the one with
    the most free slots, then the one whose last assignment is the oldest.
    """

    __slots__ = (
        *("_heap", "_members", "_resources", "_available"),
        *("kinds", "key_count", "one_at_a_time", "requirements", "virtual_time", "waiting"),
    )

    def __init__(
        self,
        requirements: Requirements | None,
        available: dict[WorkerGroup, None],
        *,
        one_at_a_time: bool = False,
    ) -> None:
        """one_at_a_time: the jobs are poison suspects, of which a worker runs one at a time."""
        self.requirements = requirements
        self.one_at_a_time = one_at_a_time
        self.kinds: set[ReadyKey] = set()  # of ready keys; see WorkerGroups
        self.key_count = 0  # how many of its ready keys have jobs
        self.virtual_time = 0.0  # at which the last job of its workers started; see ReadyQueues
        # The sections with jobs, one per queue, in the order of their queues.
        self.waiting: LazyHeap[Section] = LazyHeap(attrgetter("key"))
        self._available = available
        self._resources = requirements is not None and bool(requirements.resources)
        self._members: dict[Worker, _Standing] = {}
        self._heap: LazyHeap[Worker] = LazyHeap(self._rank)

    @property
    def members(self) -> list[Worker]:
        """All workers, including busy ones, in the order in which they were attached."""
        return sorted(self._members, key=attrgetter("number"))

    @property
    def has_members(self) -> bool:
        """Whether any attached worker serves its ready keys."""
        return bool(self._members)

    @property
    def key(self) -> _GroupKey:
        """The identity of the group: its workers, and the resources and preferences of its jobs."""
        resources, prefer = _demand(self.requirements)
        numbers = frozenset(worker.number for worker in self._members)
        return numbers, resources, prefer, self.one_at_a_time

    def add(self, worker: Worker) -> None:
        requirements = self.requirements
        self._members[worker] = (
            worker.spec.is_relayed,
            0.0 if requirements is None else -requirements.preference_score(worker.spec.labels),
        )
        worker.groups[self] = None
        self.virtual_time = max(self.virtual_time, worker.virtual_time)
        self.mark_available(worker)

    def remove(self, worker: Worker) -> None:
        self._members.pop(worker, None)
        worker.groups.pop(self, None)
        self._heap.discard(worker)

    def mark_available(self, worker: Worker) -> None:
        """File the worker as available after its free slots may have grown."""
        bound = (self._members[worker], -worker.free, -worker.last_assigned, worker.number)
        if worker.free > 0 and self._heap.push(worker, bound):
            self._available[self] = None

    def enqueue(self, section: Section, key: Key) -> None:
        """Add the section to the waiting ones, with a lower bound of its key."""
        if self.waiting.push(section, key):
            self._available[self] = None

    def first(self) -> Worker | None:
        """Return the worker that gets the next job, or None if none is available."""
        return self._heap.first()

    def share(self, count: int) -> list[Worker]:
        """Return the workers that get the next jobs, at most `count`, as far as slots are free.

        Each job goes to the worker that is best after the jobs before it are assigned.
        """
        best = self._heap.first()
        if best is None:
            return []
        if count == 1 or self.requirements is not None or self.one_at_a_time:
            return [best]
        if len(self._members) == 1:
            return [best] * min(count, best.free)
        return self._draw(count)

    def _draw(self, count: int) -> list[Worker]:
        chosen: list[Worker] = []
        drawn: list[Worker] = []
        # The drawn workers, in the order in which they get further jobs.
        candidates: list[tuple[_Standing, int, int, int, Worker]] = []
        while len(chosen) < count:
            worker = self._heap.first()
            if worker is not None:
                standing = self._members[worker]
                entry = (standing, -worker.free, -worker.last_assigned, worker.number, worker)
                if not candidates or entry < candidates[0]:
                    drawn.append(worker)
                    heappush(candidates, entry)
                    self._heap.pop()
                    continue
            if not candidates:
                break
            standing, free, _, number, worker = candidates[0]
            chosen.append(worker)
            if free == -1:
                heappop(candidates)
            else:
                later = _LATER + len(chosen)
                heapreplace(candidates, (standing, free + 1, later, number, worker))
        for worker in drawn:
            self.mark_available(worker)
        return chosen

    def _rank(self, worker: Worker) -> Key | None:
        if worker.free <= 0 or (self._resources and worker.capacity_for(self.requirements) <= 0):
            return None
        if self.one_at_a_time and worker.suspects:
            return None
        return self._members[worker], -worker.free, -worker.last_assigned, worker.number


class WorkerGroups:
    """The groups of the attached workers.

    The kind of a ready key determines which workers serve it. The kind is the ready key itself,
    without the queue as long as no worker names the queues that it serves.
    """

    def __init__(self) -> None:
        # The groups that may have both an available worker and a job that can start.
        self.available: dict[WorkerGroup, None] = {}
        self.freed: set[Worker] = set()  # those whose free slots may have grown since `note_freed`
        self.virtual_time = 0.0  # of the last start, with which a new worker begins
        self.generation = 0  # grows when every ready key must be assigned to a group again
        self._workers: dict[Worker, None] = {}
        self._naming_queues = 0  # how many workers name the queues that they serve
        self._groups: dict[_GroupKey, WorkerGroup] = {}
        self._by_kind: dict[ReadyKey, WorkerGroup] = {}
        self._groups_max = IDLE_GROUPS_MAX
        self._kinds_max = KINDS_KNOWN_MAX

    def find(self, ready_key: ReadyKey) -> WorkerGroup:
        """Return the group of the ready key."""
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

    def unserved(self) -> dict[ReadyKey, int]:
        """Return how many due jobs in memory no attached worker can run, by ready key.

        It looks at UNSERVED_SAMPLED queues of a group at most, and at as many ready keys of each.
        """
        return {
            index.key: len(index)
            for group in self._groups.values()
            if group.key_count and not group.has_members
            for section in group.waiting.sample(UNSERVED_SAMPLED)
            for index in section.heap.sample(UNSERVED_SAMPLED)
            if len(index)
        }

    def note_freed(self) -> None:
        """Notify the groups of each worker in `freed` that it may be available."""
        for worker in self.freed:
            for group in worker.groups:
                group.mark_available(worker)
        self.freed.clear()

    def admit(self, worker: Worker) -> None:
        """Add a worker to the groups whose ready keys it serves."""
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
            if served and (served < len(group.kinds) or any(k.isolated for k in group.kinds)):
                # It serves only some keys of the group, or the group's suspects may now have to run
                # one at a time: the group must be made again.
                self._clear()
                return
            if served:
                joined.append(group)
        for group in joined:
            group.add(worker)
        self._refile()

    def remove_worker(self, worker: Worker) -> None:
        """Remove a worker from all groups."""
        if worker not in self._workers:
            return
        del self._workers[worker]
        self._naming_queues -= worker.spec.queues is not None
        if any(group.one_at_a_time for group in worker.groups):  # perhaps not any more
            worker.groups.clear()
            self._clear()
            return
        for group in list(worker.groups):
            group.remove(worker)
        self._refile()

    def _refile(self) -> None:
        """File the groups by their current workers; if two have become equal, rebuild all."""
        filed = {group.key: group for group in self._groups.values()}
        if len(filed) < len(self._groups):
            self._clear()
        else:
            self._groups = filed

    def _find_or_make(self, kind: ReadyKey) -> WorkerGroup:
        members = [worker for worker in self._workers if worker.spec.serves(kind)]
        one_at_a_time = kind.isolated and not all(w.spec.isolates(kind.task) for w in members)
        numbers = frozenset(worker.number for worker in members)
        key = (numbers, *_demand(kind.requirements), one_at_a_time)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._groups_max:
                self._evict_idle()
            group = self._groups[key] = WorkerGroup(
                kind.requirements, self.available, one_at_a_time=one_at_a_time
            )
            for worker in members:
                group.add(worker)
        return group

    def _evict_idle(self) -> None:
        """Evict groups without jobs: each released slot is noted in every group of its worker."""
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
