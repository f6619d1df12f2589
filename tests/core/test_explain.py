"""The explanation of what each job waits for."""

from __future__ import annotations

import pytest

from schedo.core.instants import render_instant
from schedo.core.leases import Blame, Lost
from schedo.core.model import Failure, Job, JobSpec, Options, Queue
from schedo.core.queue_pause import QueuePause
from schedo.core.requirements import Requirements
from schedo.core.states import State
from tests.core.builders import HOUR, T0, make_job, make_spec, worker_spec
from tests.core.server import Server, with_suspects


def why(server: Server, job: Job) -> str:
    return "; ".join(server.scheduler.explain(server.job(job.id)).reasons)


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (
            make_job(state=State.SCHEDULED, due_at=HOUR),
            "it is not due before 1970-01-01T01:00:00.000000Z",
        ),
        (make_job(state=State.BLOCKED), "an earlier run of its schedule is not finished"),
        (make_job(state=State.RUNNING, attempt=2, worker="w"), "attempt 2 is running on w"),
        (
            make_job(state=State.RETRYING, attempt=1, due_at=HOUR),
            "attempt 1 failed; the next one is due at 1970-01-01T01:00:00.000000Z",
        ),
        (make_job(state=State.COMPLETED), "it is completed"),
        (make_job(state=State.FAILED), "it has failed"),
        (make_job(state=State.FAILED, failure=Failure("x", "it broke")), "it broke"),
        (make_job(state=State.CANCELLED), "it was cancelled"),
        (make_job(state=State.EXPIRED), "it expired before it could start"),
        (
            make_job(state=State.EXPIRED, attempt=2),
            "it expired after attempt 2, before the next one could start",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_state_of_a_job_has_an_explanation(job: Job, sentence: str) -> None:
    assert Server().scheduler.explain(job).reasons == [sentence]


def test_a_job_of_a_paused_queue_is_explained() -> None:
    server = Server()
    server.set_queue(Queue("default", paused=True))

    assert why(server, server.submit(make_spec())) == "queue default is paused"


def test_a_job_of_a_full_queue_is_explained() -> None:
    server = Server()
    server.set_queue(Queue("default", concurrency=1))
    server.submit(make_spec())
    second = server.submit(make_spec())
    server.run(T0)

    assert why(server, second) == "queue default runs 1 jobs, which is its concurrency limit"


def test_a_job_of_a_queue_whose_limit_was_lowered_below_what_runs_is_explained() -> None:
    server = Server()
    for _ in range(3):
        server.submit(make_spec())
    server.run(T0)
    server.set_queue(Queue("default", concurrency=2))

    fourth = server.submit(make_spec())

    assert why(server, fourth) == "queue default runs 3 jobs, more than its concurrency limit of 2"


def test_a_job_without_a_worker_is_explained() -> None:
    server = Server(slots=0)
    job = server.submit(make_spec("mail", queue="q"))

    assert why(server, job) == "no worker offers task mail on queue q"


def test_all_obstacles_are_named_and_the_permanent_ones_come_first() -> None:
    server = Server(slots=0)
    server.set_queue(Queue("q", paused=True))
    queued = server.submit(make_spec("mail", queue="q"))
    later = server.submit(make_spec("mail", queue="q", delay_us=HOUR))
    unoffered = "no worker offers task mail on queue q"

    assert server.scheduler.explain(server.job(queued.id)).reasons == [
        unoffered,
        "queue q is paused",
    ]
    assert server.scheduler.explain(server.job(later.id)).reasons == [
        unoffered,
        "queue q is paused",
        f"it is not due before {render_instant(later.due_at)}",
    ]


def test_a_paused_queue_whose_slots_are_taken_names_both() -> None:
    server = Server(slots=1)
    jobs = [server.submit(make_spec()) for _ in range(2)]
    server.run(T0)
    server.set_queue(Queue("default", paused=True))

    assert why(server, jobs[1]) == "queue default is paused; all 1 slots for task work are taken"


def test_the_explanation_of_a_job_that_waits_for_a_slot_counts_the_slots() -> None:
    server = Server(slots=1)
    server.attach(worker_spec("other", slots=1))
    server.attach(worker_spec("elsewhere", slots=5, tasks=frozenset({"mail"})))
    jobs = [server.submit(make_spec()) for _ in range(3)]
    server.run(T0)

    assert why(server, jobs[2]) == "all 2 slots for task work are taken"


def test_the_explanation_does_not_count_slots_of_cordoned_workers() -> None:
    server = Server(slots=1)
    server.attach(worker_spec("other", slots=3))
    server.scheduler._workers.cordon("other", True)
    jobs = [server.submit(make_spec()) for _ in range(2)]
    server.run(T0)

    assert why(server, jobs[1]) == "all 1 slots for task work are taken"


def test_a_job_whose_worker_is_not_polling_is_explained() -> None:
    server = Server(slots=0)
    server.attach(worker_spec("idle", slots=4, polls=True))
    job = server.submit(make_spec())
    server.run(T0)

    assert why(server, job) == "no worker that could run it is polling now: idle"


def test_the_explanation_of_a_job_behind_the_horizon_counts_the_jobs_ahead_of_it() -> None:
    server = Server(capacity=1, slots=0)
    jobs = [server.submit(make_spec()) for _ in range(6)]
    server.attach(worker_spec())

    assert why(server, jobs[0]) == "it is next"
    assert why(server, jobs[5]) == "at least 1 ready jobs of its queue and task go first"


def test_a_job_with_an_unknown_ready_key_is_explained() -> None:
    server = Server()
    elsewhere = make_job(state=State.QUEUED, due_at=HOUR)

    assert server.scheduler.explain(elsewhere).reasons == [
        "at least 0 ready jobs of its queue and task go first"
    ]


NEEDS_GPU = Options(requirements=Requirements(resources=(("gpu", 1_000),)))


def test_a_poison_suspect_without_a_worker_that_isolates_it_is_explained() -> None:
    server = Server(slots=1)
    job = server.submit(make_spec())
    server.run(T0)
    server.report(job.id, Lost(blame=Blame.SHARED), T0)

    assert why(server, job) == (
        "its last worker died with several jobs, and no worker isolates jobs of task work"
    )


def test_a_poison_suspect_behind_another_one_is_explained() -> None:
    server, jobs = with_suspects()

    assert [why(server, job) for job in jobs] == [
        "attempt 2 is running on far",
        "its last worker died with several jobs, and a worker runs one such job at a time",
    ]


def test_the_explanation_of_a_job_that_waits_for_resources_names_them() -> None:
    server = Server(slots=0)
    server.attach(worker_spec(slots=5, resources={"gpu": 1_000}))
    jobs = [server.submit(JobSpec("work", options=NEEDS_GPU)) for _ in range(2)]
    server.run(T0)

    assert why(server, jobs[1]) == "the resources that it needs are in use: 1 gpu"


def test_a_job_that_waits_for_a_share_of_the_limit_is_explained() -> None:
    server = Server()
    server.scheduler.limits.begin()
    server.set_queue(Queue("default", concurrency=3))
    job = server.submit(make_spec())
    server.run(T0)

    assert why(server, job) == (
        "queue default runs 0 jobs here; the rest of its concurrency limit of 3 is for other"
        " servers at the moment"
    )


def test_the_explanation_names_the_requirement_that_no_worker_meets() -> None:
    server = Server(slots=0)
    server.attach(worker_spec("small", slots=5, resources={"gpu": 500}))
    server.attach(worker_spec("large", slots=5))
    job = server.submit(JobSpec("work", options=NEEDS_GPU))

    assert why(server, job) == "no worker offers 1 gpu"


def test_each_check_is_told_whether_it_holds_or_not() -> None:
    server = Server(slots=1)
    server.set_queue(Queue("default", concurrency=1))
    jobs = [server.submit(make_spec()) for _ in range(2)]
    server.run(T0)

    checks = server.scheduler.explain(server.job(jobs[1].id)).checks

    assert [(check.what, check.is_ok, check.text) for check in checks] == [
        ("concurrency", False, "queue default runs 1 jobs, which is its concurrency limit"),
        ("slot", False, "all 1 slots for task work are taken"),
        ("worker", True, "1 worker could run it"),
        ("due", True, f"it has been due since {render_instant(T0)}"),
        ("server", True, "the server is not paused"),
        ("queue", True, "queue default is not paused"),
    ]
    assert not any(check.is_permanent for check in checks)


def test_the_checks_of_a_job_that_starts_next_all_hold() -> None:
    server = Server(slots=0)
    job = server.submit(make_spec())
    server.attach(worker_spec("free", slots=1))
    server.attach(worker_spec("other", slots=1))
    server.set_queue(Queue("default", concurrency=3))

    explanation = server.scheduler.explain(server.job(job.id))

    assert [(check.what, check.text) for check in explanation.checks][-3:] == [
        ("concurrency", "queue default runs 0 of 3 jobs"),
        ("slot", "free, other could take it now"),
        ("turn", "it is next"),
    ]
    assert all(check.is_ok for check in explanation.checks)
    assert {each.text for each in explanation.workers} == {"it could take the job now"}


def test_a_pause_with_an_end_is_not_permanent() -> None:
    server = Server()
    server.set_queue(Queue("q", paused=True, pause=QueuePause(T0, None, HOUR)))
    server.set_queue(Queue("r", paused=True, pause=QueuePause(T0)))
    jobs = [server.submit(make_spec(queue=queue)) for queue in ("q", "r")]

    first = [server.scheduler.explain(server.job(job.id)).checks[0] for job in jobs]

    assert [(check.what, check.is_permanent) for check in first] == [
        ("queue", False),
        ("queue", True),
    ]


def test_workers_that_are_all_cordoned_are_a_permanent_obstacle() -> None:
    server = Server(slots=0)
    for number in range(6):
        server.attach(worker_spec(f"w{number}"))
        server.scheduler._workers.cordon(f"w{number}", True)
    job = server.submit(make_spec())

    [check] = [c for c in server.scheduler.explain(server.job(job.id)).checks if not c.is_ok]

    assert check.is_permanent
    assert check.text.endswith("are cordoned or draining: w0, w1, w2, w3, w4 and 1 more")
