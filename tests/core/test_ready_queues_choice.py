"""The choice of the next job against a scan of everything, and how much of that it touches."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from schedo.core.model import Job, LeaseKey, Options, Queue
from schedo.core.paged_index import PagedIndex
from schedo.core.queue_states import ReadyIndex
from schedo.core.ready_queues import ReadyQueues
from schedo.core.requirements import Condition, Preference, Requirements
from schedo.core.worker_groups import WorkerGroup
from schedo.core.worker_pool import Worker, WorkerPool, WorkerSpec
from tests.core.builders import worker_spec
from tests.core.full_scan import pick, scan, scan_pages

QUEUES = ("a", "b", "c", "d", "e")
TASKS = ("t", "u", "v")
REQUIREMENTS = (
    None,
    None,
    Requirements(resources=(("cpu", 2_000),)),
    Requirements(resources=(("cpu", 1_000),)),
    Requirements(labels=(Condition("zone", "=", ("x",)),)),
    Requirements(worker="w1"),
    Requirements(prefer=(Preference((Condition("zone", "=", ("y",)),), 2.0),)),
)
NAMES = ("w0", "w1", "w2", "w3")


class History:
    """Ready queues, workers and a store under random events."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.workers = WorkerPool()
        self.ready_queues = ReadyQueues(self.workers, 4, 32)
        self.queues: tuple[str, ...] = QUEUES
        self.tasks: tuple[str, ...] = TASKS
        self.requirements: tuple[Requirements | None, ...] = REQUIREMENTS
        if seed % 3 == 0:  # often a single ready key, from which batches start
            self.queues, self.tasks, self.requirements = QUEUES[:1], TASKS[:1], (None,)
        for name in NAMES[:2]:
            self.workers.attach(worker_spec(name, 2))
        self.next_id = 1
        self.waiting: dict[int, Job] = {}  # all waiting jobs, in memory or not
        self.running: list[tuple[str, LeaseKey, Job | None]] = []
        self.started = 0

    def step(self) -> None:
        """Apply one random event."""
        deeds: list[tuple[int, Callable[[], None]]] = [
            (10, self.add),
            (3, self.remove),
            (8, self.take),
            (8, self.end),
            (3, self.set_queue),
            (2, self.attach),
            (1, self.detach),
            (2, self.close_or_cordon),
            (4, self.poll),
            (2, self.reserve),
            (6, self.deliver),
            (1, self.retreat),
            (1, self.trim),
            (1, self.ready_queues.evict_idle),
        ]
        weights = [weight for weight, _ in deeds]
        self.random.choices([deed for _, deed in deeds], weights)[0]()
        if self.ready_queues.is_crowded:
            self.trim()

    def add(self) -> None:
        draw = self.random
        options = Options(requirements=draw.choice(self.requirements))
        for _ in range(draw.choice((1, 1, 3))):
            job = Job(
                id=self.next_id,
                rank=draw.randrange(100),
                queue=draw.choice(self.queues),
                task=draw.choice(self.tasks),
                options=options,
                poison_suspect=draw.random() < 0.1,
            )
            self.next_id += 1
            self.put(job)

    def put(self, job: Job) -> None:
        self.waiting[job.id] = job
        ready = self.ready_queues.add(job)
        if ready is not None and ready.is_overfull:
            list(ready.trim())

    def remove(self) -> None:
        if self.waiting:
            job = self.waiting.pop(self.random.choice(list(self.waiting)))
            self.ready_queues.remove(job)

    def take(self) -> None:
        """Start all jobs that can start, and compare each choice with the scan."""
        for _ in range(self.random.choice((1, 2, 100))):
            expected = scan(self.ready_queues, self.workers)
            taken = self.ready_queues.take()
            if not taken:
                assert expected is None
                return
            assert (taken[0][0], taken[0][1].spec.id) == expected
            has_expired = self.random.random() < 0.1
            for job_id, worker in taken:
                job = self.waiting.pop(job_id)
                if not has_expired:
                    assert worker is pick(job.ready_key, self.workers)
                    self.start(worker, LeaseKey(job_id, 1, 1), job)

    def start(self, worker: Worker, key: LeaseKey, job: Job) -> None:
        requirements = job.options.requirements
        amounts = requirements.resources if requirements is not None else ()
        worker.hold(key, amounts, is_suspect=job.poison_suspect)
        self.ready_queues.queue_state(job.queue).running += 1
        self.running.append((worker.spec.id, key, job))
        self.started += 1

    def end(self) -> None:
        if not self.running:
            return
        at = self.random.randrange(len(self.running))
        name, key, job = self.running.pop(at)
        self.workers.release(name, key)
        if job is not None:
            self.ready_queues.ended(job.queue)
            if self.random.random() < 0.2:
                job.rank = self.random.randrange(-50, 50)
                self.put(job)

    def set_queue(self) -> None:
        draw = self.random
        self.ready_queues.set_queue(
            Queue(
                draw.choice(self.queues),
                concurrency=draw.choice((None, None, 0, 1, 2, 5)),
                paused=draw.random() < 0.2,
                weight=draw.choice((1, 1, 2, 4)),
            )
        )

    def attach(self) -> None:
        self.workers.attach(self.random_spec())

    def random_spec(self) -> WorkerSpec:
        draw = self.random
        return worker_spec(
            draw.choice(NAMES),
            draw.choice((1, 2, 5)),
            tasks=draw.choice((None, None, frozenset({"t"}), frozenset({"t", "u"}))),
            queues=draw.choice((None, None, None, frozenset({"a", "b"}))),
            isolated=draw.random() < 0.15,
            isolated_tasks=draw.choice((frozenset(), frozenset({"t"}))),
            labels=draw.choice(({}, {"zone": "x"}, {"zone": "y"})),
            resources=draw.choice(({}, {"cpu": 4_000})),
            polls=draw.random() < 0.3,
        )

    def detach(self) -> None:
        name = self.random.choice(NAMES)
        gone = set(self.workers.detach(name))
        kept = []
        for worker, key, job in self.running:
            if key in gone and job is not None:
                self.ready_queues.ended(job.queue)
            elif worker != name:
                kept.append((worker, key, job))
        self.running = kept

    def close_or_cordon(self) -> None:
        name = self.random.choice(NAMES)
        if self.random.random() < 0.3:
            self.workers.close(name)
        else:
            self.workers.cordon(name, self.random.random() < 0.5)

    def poll(self) -> None:
        self.workers.poll(self.random.choice(NAMES), self.random.choice((0, 1, 3)))

    def reserve(self) -> None:
        worker = self.workers.find(self.random.choice(NAMES))
        if worker is not None and worker.slots_free > 0:
            key = LeaseKey(-self.next_id, 0, 0)
            self.next_id += 1
            worker.hold(key, (("cpu", 1_000),) if worker.spec.resources else ())
            self.running.append((worker.spec.id, key, None))

    # The store.

    def deliver(self) -> None:
        """Load the pages of the ready keys that the scan finds."""
        limit = self.random.choice((1, 2, 8))
        expected = scan_pages(self.ready_queues)
        assert self.ready_queues.needs_pages() == bool(expected)
        taken = self.ready_queues.take_pages(limit)
        assert [ready_key for ready_key, _ in taken] == expected[:limit]
        for ready_key, ready in taken:
            after = ready.horizon
            assert after is not None
            if self.random.random() < 0.1:
                list(ready.retreat((0, 0)))  # it was trimmed meanwhile
            behind = sorted(
                (job.rank, job.id)
                for job in self.waiting.values()
                if job.ready_key == ready_key and (job.rank, job.id) > after
            )
            page = behind[: ready.page_size]
            last = page[-1] if len(page) == ready.page_size else None
            if ready.extend(after, last):
                for _, job_id in page:
                    self.put(self.waiting[job_id])
            self.ready_queues.settle(ready_key)

    def retreat(self) -> None:
        """The store has queued jobs itself."""
        if self.waiting:
            job = self.waiting[self.random.choice(list(self.waiting))]
            self.ready_queues.retreat(job.ready_key, (job.rank, job.id))

    def trim(self) -> None:
        list(self.ready_queues.trim())


@pytest.mark.parametrize("seed", range(150))
def test_the_next_job_is_the_one_that_a_scan_of_everything_finds(seed: int) -> None:
    history = History(seed)
    for _ in range(400):
        history.step()
    history.take()

    assert history.started > 0


# The cost of a choice.


class Touches:
    """Counts the reads of first jobs, of needs for pages and of workers' free slots."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def count(*arguments: object) -> object:
            self.count += 1
            return call(*arguments)

        return count


@pytest.fixture
def touches(monkeypatch: pytest.MonkeyPatch) -> Touches:
    touches = Touches()
    monkeypatch.setattr(PagedIndex, "first", touches.counted(PagedIndex.first))
    monkeypatch.setattr(ReadyIndex, "needs_page", touches.counted(ReadyIndex.needs_page))
    monkeypatch.setattr(WorkerGroup, "_rank", touches.counted(WorkerGroup._rank))
    return touches


def fill(ready_queues: ReadyQueues, queues: int, tasks: int, jobs: int) -> None:
    for number in range(jobs):
        queue, task = f"q{number % queues}", f"t{number % tasks}"
        assert ready_queues.add(Job(id=number + 1, rank=number, queue=queue, task=task))


def turns(ready_queues: ReadyQueues, workers: WorkerPool, count: int) -> None:
    """Repeat `count` times: end the oldest running job, then start as many jobs as fit."""
    running: list[tuple[str, LeaseKey]] = []
    for number in range(count):
        if running:
            name, key = running.pop(0)
            workers.release(name, key)
        while taken := ready_queues.take():
            for job_id, worker in taken:
                key = LeaseKey(job_id, number, 1)
                worker.hold(key, ())
                running.append((worker.spec.id, key))
        ready_queues.needs_pages()


@pytest.mark.parametrize(
    ("queues", "tasks"), [(1, 1), (1, 1_000), (1_000, 1), (2_000, 1), (50, 40)]
)
def test_the_cost_of_a_start_does_not_depend_on_the_number_of_ready_keys(
    queues: int, tasks: int, touches: Touches
) -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("busy", 3, tasks=frozenset(f"t{n}" for n in range(tasks))))
    workers.attach(worker_spec("idle", 3, tasks=frozenset({"other"})))
    ready_queues = ReadyQueues(workers, 10_000)
    fill(ready_queues, queues, tasks, 4_000)
    turns(ready_queues, workers, 100)

    touches.count = 0
    turns(ready_queues, workers, 500)

    assert touches.count < 500 * 12


def test_the_cost_of_a_start_does_not_depend_on_the_number_of_workers(
    touches: Touches,
) -> None:
    workers = WorkerPool()
    for number in range(1_000):
        workers.attach(worker_spec(f"w{number}", 2))
    ready_queues = ReadyQueues(workers, 10_000)
    fill(ready_queues, 20, 1, 6_000)
    turns(ready_queues, workers, 1)

    touches.count = 0
    turns(ready_queues, workers, 500)

    assert touches.count < 500 * 14


def test_full_and_paused_queues_add_no_cost_to_a_start(
    touches: Touches,
) -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("w", 3))
    ready_queues = ReadyQueues(workers, 10_000)
    fill(ready_queues, 2_000, 1, 4_000)
    for number in range(1_000):
        ready_queues.set_queue(Queue(f"q{number}", paused=number % 2 == 0, concurrency=1))
        ready_queues.queue_state(f"q{number}").running += 1
    turns(ready_queues, workers, 1)

    touches.count = 0
    turns(ready_queues, workers, 500)

    assert touches.count < 500 * 12


def test_pages_are_found_without_a_scan_of_all_ready_keys(
    touches: Touches,
) -> None:
    workers = WorkerPool()
    ready_queues = ReadyQueues(workers, 100)
    fill(ready_queues, 2_000, 1, 2_000)
    for number in (3, 7):
        ready_key = Job(queue=f"new{number}", task="t0").ready_key
        ready_queues.announce(ready_key)

    touches.count = 0
    assert ready_queues.needs_pages()
    assert len(ready_queues.take_pages(8)) == 2
    assert not ready_queues.needs_pages()

    assert touches.count < 10


def test_equal_workers_that_attach_and_detach_regroup_nothing(touches: Touches) -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("first", 1))
    ready_queues = ReadyQueues(workers, 10_000)
    fill(ready_queues, 2_000, 1, 2_000)
    turns(ready_queues, workers, 10)

    touches.count = 0
    for number in range(100):
        workers.attach(worker_spec(f"w{number}", 1))
    for number in range(100):
        workers.detach(f"w{number}")
    assert ready_queues.take() == []

    assert touches.count < 100 * 6
