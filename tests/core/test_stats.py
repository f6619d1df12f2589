"""What monitoring reads from the scheduler: running jobs of workers, and the oldest due jobs."""

from __future__ import annotations

from schedo.core.commands import CloseWorker
from schedo.core.model import LeaseKey, PauseScope, Queue
from schedo.core.pause_commands import PauseServer
from schedo.core.stats import KEYS_MAX
from schedo.core.worker_commands import WORKER_RUNS_MAX
from schedo.core.worker_messages import Run
from schedo.core.worker_pool import WorkerSpec
from tests.core.builders import HOUR, SECOND, T0, make_spec, worker_spec
from tests.core.remote_site import Site
from tests.core.server import Server


def test_a_worker_lists_the_jobs_that_it_runs() -> None:
    server = Server(slots=2)
    jobs = [server.submit(make_spec()) for _ in range(3)]
    server.run(T0)

    [seen] = server.scheduler.worker_statuses(T0)

    assert seen.runs == [Run(job.id, "work", T0) for job in jobs[:2]]
    assert server.scheduler.worker_status(seen.name, T0).runs == seen.runs


def test_a_list_of_workers_is_bounded_in_its_running_jobs() -> None:
    server = Server(slots=0)
    server.attach(worker_spec("a", slots=WORKER_RUNS_MAX + 6))
    server.attach(worker_spec("b", slots=5))
    for _ in range(WORKER_RUNS_MAX + 11):
        server.submit(make_spec())
    server.run(T0)

    seen = server.scheduler.worker_statuses(T0, None, WORKER_RUNS_MAX + 3)

    assert [len(each.runs) for each in seen] == [WORKER_RUNS_MAX, 3]


def test_the_oldest_due_job_of_a_queue_is_the_oldest_of_all_its_tasks() -> None:
    server = Server(slots=0)
    server.submit(make_spec("mail", queue="q"), T0 + SECOND)
    server.submit(make_spec("work", queue="q"), T0)
    server.submit(make_spec("later", queue="q", delay_us=HOUR), T0)

    assert server.scheduler.queue("q").oldest_due_at == T0
    assert server.scheduler.queue("unknown").oldest_due_at is None


def test_a_queue_without_a_due_job_has_no_oldest_one() -> None:
    server = Server()
    server.set_queue(Queue("q", weight=2))

    assert server.scheduler.queue("q").oldest_due_at is None


def test_the_jobs_that_wait_longest_are_found_with_their_reason() -> None:
    server = Server(slots=0)
    for number in range(4):
        server.submit(make_spec(queue=f"q{number}"), T0 + number * SECOND)

    found = server.scheduler.find_waiting(T0 + 3 * SECOND, 2)

    assert [(each.ready_key.queue, each.due_at, each.reason) for each in found] == [
        ("q0", T0, "no worker offers task work on queue q0"),
        ("q1", T0 + SECOND, "no worker offers task work on queue q1"),
    ]


def test_the_search_for_waiting_jobs_is_bounded() -> None:
    server = Server(capacity=1, slots=0)
    for number in range(KEYS_MAX + 4):
        server.submit(make_spec(queue=f"q{number}"), T0)

    assert len(server.scheduler.find_waiting(T0 + SECOND, 1_000)) <= KEYS_MAX


def test_jobs_that_wait_only_for_a_worker_are_the_surplus() -> None:
    server = Server(slots=0)
    server.set_queue(Queue("limited", concurrency=1))
    server.set_queue(Queue("paused", paused=True))
    for queue in ("limited", "limited", "paused", "open", "open"):
        server.submit(make_spec(queue=queue), T0)

    found = server.scheduler.find_surplus(10)

    assert {key.queue: count for key, count in found.items()} == {"limited": 1, "open": 2}
    assert len(server.scheduler.find_surplus(1)) == 1
    server.apply(PauseServer((PauseScope.STARTS,)), T0)
    assert server.scheduler.find_surplus(10) == {}


def test_a_relayed_worker_counts_only_the_slots_that_it_uses_here() -> None:
    site = Site()
    site.poll(spec=WorkerSpec("a", 5, is_relayed=True), max_leases=1)
    site.submit(make_spec())
    site.turn()

    assert site.scheduler.slots() == (1, 1)


def test_slots_that_a_worker_uses_for_other_servers_are_counted_there() -> None:
    site = Site()
    theirs = frozenset({LeaseKey(7, 1, 1), LeaseKey(8, 1, 1)})

    site.poll(slots=5, max_leases=1, running=frozenset(), elsewhere=theirs)

    assert site.scheduler.slots() == (3, 0)


def test_a_worker_that_runs_more_than_it_has_slots_counts_those_that_it_uses_here() -> None:
    site = Site()
    site.poll(slots=2, max_leases=1)
    site.submit(make_spec())
    site.turn()
    theirs = frozenset(LeaseKey(number, 1, 1) for number in (7, 8, 9))

    site.poll(slots=2, max_leases=0, elsewhere=theirs)

    assert site.scheduler.slots() == (1, 1)


def test_a_worker_that_closes_offers_no_slots_but_uses_those_of_its_attempts() -> None:
    server = Server(slots=2)
    server.submit(make_spec())
    server.run(T0)
    [worker] = server.scheduler.worker_statuses(T0)

    server.apply(CloseWorker(worker.name), T0)

    assert server.scheduler.slots() == (0, 1)
