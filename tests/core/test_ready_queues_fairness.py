"""Queues share the starts of the workers for which they compete, whatever happened elsewhere."""

from __future__ import annotations

from collections import Counter, deque

from schedo.core.model import Job, LeaseKey, Options, Queue
from schedo.core.ready_queues import ReadyQueues
from schedo.core.requirements import Requirements
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import worker_spec

NEEDS_GPU = Requirements(resources=(("gpu", 1_000),))


class Site:
    """Ready queues with workers of one slot; a test says which worker ends its job next."""

    def __init__(self, **tasks: str) -> None:
        """tasks: of each worker."""
        self.workers = WorkerPool()
        self.ready_queues = ReadyQueues(self.workers, capacity=100_000)
        self.jobs: dict[int, Job] = {}
        self.running: dict[str, deque[LeaseKey]] = {}
        for name, task in tasks.items():
            self.attach(name, task)

    def attach(self, name: str, *tasks: str) -> None:
        spec = worker_spec(name, 1, tasks=frozenset(tasks), resources={"gpu": 1_000})
        self.workers.attach(spec)
        self.running[name] = deque()

    def add(self, queue: str, task: str, count: int, needs: Requirements | None = None) -> None:
        for _ in range(count):
            ident = len(self.jobs) + 1
            job = Job(id=ident, queue=queue, task=task, options=Options(requirements=needs))
            self.jobs[ident] = job
            self.ready_queues.add(job)

    def run(self, worker: str, count: int) -> dict[str, int]:
        """Let the worker start `count` jobs one after the other; return their number by queue."""
        found: Counter[str] = Counter()
        for _ in range(count):
            if self.running[worker]:
                key = self.running[worker].popleft()
                self.workers.release(worker, key)
                self.ready_queues.ended(self.jobs[key.job_id].queue)
            self._start()
            found[self.jobs[self.running[worker][0].job_id].queue] += 1
        return found

    def _start(self) -> None:
        while taken := self.ready_queues.take():
            for ident, worker in taken:
                key = LeaseKey(ident, 1, 1)
                worker.hold(key, ())
                self.ready_queues.queue_state(self.jobs[ident].queue).running += 1
                self.running[worker.spec.id].append(key)


def test_a_queue_gets_no_extra_starts_for_the_time_when_it_was_paused() -> None:
    site = Site(w="mail")
    site.ready_queues.set_queue(Queue("paused", paused=True))
    site.add("paused", "mail", 100)
    site.add("busy", "mail", 1_000)
    site.run("w", 500)

    site.ready_queues.set_queue(Queue("paused"))

    assert site.run("w", 101) == {"paused": 51, "busy": 50}


def test_a_queue_gets_no_extra_starts_for_the_time_without_a_worker() -> None:
    site = Site(w="mail")
    site.add("train", "train", 100)
    site.add("busy", "mail", 1_000)
    site.run("w", 500)

    site.workers.detach("w")
    site.attach("next", "mail", "train")

    assert site.run("next", 101) == {"train": 51, "busy": 50}


def test_a_new_queue_waits_for_no_starts_of_workers_that_do_not_serve_it() -> None:
    site = Site(slow="train", fast="mail")
    site.add("trainings", "train", 1_000)
    site.add("mails", "mail", 10_000)
    site.run("slow", 10)
    site.run("fast", 5_000)

    site.add("urgent", "train", 100)

    assert site.run("slow", 101) == {"urgent": 51, "trainings": 50}


def test_a_new_queue_takes_no_starts_of_another_one_for_those_that_slow_workers_lack() -> None:
    site = Site(slow="train", fast="mail")
    site.add("trainings", "train", 1_000)
    site.add("mails", "mail", 10_000)
    site.run("fast", 5_000)
    site.run("slow", 10)

    site.add("letters", "mail", 1_000)

    assert site.run("fast", 101) == {"letters": 51, "mails": 50}


def test_queues_whose_jobs_have_different_requirements_share_the_starts_of_a_worker() -> None:
    site = Site(w="mail")
    site.add("first", "mail", 1, NEEDS_GPU)
    site.add("busy", "mail", 1_000)
    site.run("w", 500)

    site.add("new", "mail", 100, NEEDS_GPU)

    assert site.run("w", 101) == {"new": 51, "busy": 50}


def test_weights_hold_on_slow_workers_while_others_start_a_thousand_times_as_many_jobs() -> None:
    site = Site(slow="train", fast="mail")
    site.ready_queues.set_queue(Queue("heavy", weight=3))
    site.add("heavy", "train", 100)
    site.add("light", "train", 100)
    site.add("mails", "mail", 50_000)

    found: Counter[str] = Counter()
    for _ in range(40):
        site.run("fast", 1_000)
        found.update(site.run("slow", 1))

    assert found == {"heavy": 30, "light": 10}
