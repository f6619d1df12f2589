"""What each worker says about a job that waits."""

from __future__ import annotations

from schedo.core.commands import Drain, PollBroken
from schedo.core.instants import render_instant
from schedo.core.model import JobSpec, Options, ReadyKey
from schedo.core.requirements import Condition, Requirements
from schedo.core.worker_pool import WorkerSpec
from tests.core.builders import T0, make_spec, worker_spec
from tests.core.remote_site import Site
from tests.core.server import Server, with_suspects
from tests.core.succession import NEXT, crashed


def test_each_worker_has_a_reason_of_its_own() -> None:
    server = Server(slots=0)
    gpu = {"gpu": 1_000}
    needs = Requirements((Condition("zone", "in", ("a", "b")),), (("gpu", 1_000),))
    for spec in (
        worker_spec("mail", tasks=frozenset({"mail"})),
        worker_spec("queue", queues=frozenset({"q"})),
        worker_spec("alone", isolated=True),
        worker_spec("small", labels={"zone": "c"}, resources={"gpu": 500}),
        worker_spec("bare"),
        worker_spec("busy", slots=1, labels={"zone": "a"}, resources=gpu),
        worker_spec("used", slots=2, labels={"zone": "a"}, resources=gpu),
        worker_spec("idle", labels={"zone": "a"}, resources=gpu, polls=True),
        worker_spec("closed", labels={"zone": "a"}, resources=gpu),
        worker_spec("cordoned", labels={"zone": "b"}, resources=gpu),
    ):
        server.attach(spec)
    workers = server.scheduler._workers
    workers.close("closed")
    workers.cordon("cordoned", True)
    for _ in range(2):
        server.submit(JobSpec("work", options=Options(requirements=needs)))
    server.run(T0)
    job = server.submit(JobSpec("work", options=Options(requirements=needs)))

    explanation = server.scheduler.explain(server.job(job.id))

    assert [(each.worker, each.text) for each in explanation.workers] == [
        ("busy", "all 1 slots are taken"),
        ("used", "0 gpu is free, and the job requires 1"),
        ("idle", "it has free slots but no open poll: it takes the job when it polls again"),
        ("closed", "it is draining: it finishes its jobs and takes no more"),
        ("cordoned", "it is cordoned: it takes no more jobs until it is uncordoned"),
        ("mail", "it does not offer task work"),
        ("queue", "it does not take jobs of queue default"),
        ("alone", "it runs only jobs whose last worker died with several jobs"),
        (
            "small",
            "its label zone is c, and the job requires zone in a, b;"
            " it has 0.5 gpu, and the job requires 1",
        ),
        (
            "bare",
            "it has no label zone, and the job requires zone in a, b;"
            " it has 0 gpu, and the job requires 1",
        ),
    ]
    assert [each.is_permanent for each in explanation.workers] == [*[False] * 3, *[True] * 7]


def test_at_most_64_workers_are_explained_and_those_that_could_run_it_come_first() -> None:
    server = Server(slots=0)
    for number in range(64):
        server.attach(worker_spec(f"mail-{number}", tasks=frozenset({"mail"})))
    server.attach(worker_spec("able"))

    reasons, has_more = server.scheduler.explain_workers(ReadyKey("default", "work"))

    assert [len(reasons), has_more, reasons[0].worker] == [64, True, "able"]


def test_a_worker_other_than_the_required_one_says_so() -> None:
    server = Server(slots=0)
    server.attach(worker_spec("one"))
    ready_key = ReadyKey("default", "work", requirements=Requirements(worker="other"))

    [reason], _ = server.scheduler.explain_workers(ready_key)

    assert (reason.obstacle, reason.text) == ("requirements", "the job requires worker other")


def test_a_worker_that_does_not_isolate_a_suspect_says_so() -> None:
    server = Server(slots=1)
    suspect = ReadyKey("default", "work", isolated=True)

    [reason], _ = server.scheduler.explain_workers(suspect)

    assert reason.text == "it does not isolate a job whose last worker died with several jobs"


def test_a_worker_that_runs_a_suspect_takes_no_second_one() -> None:
    server, jobs = with_suspects()

    explanation = server.scheduler.explain(server.job(jobs[1].id))

    assert explanation.workers[0].text == (
        "it runs another job whose last worker died, and such jobs run one at a time"
    )


def test_a_silent_worker_says_when_it_was_heard_last() -> None:
    site = Site()
    poll = site.poll("broken")
    site.report_in("gone", is_draining=True)
    site.report_in("other", spec=WorkerSpec("other", 1, frozenset({"mail"})), is_draining=True)
    site.apply(PollBroken(poll, "broken"), T0)
    job = site.submit(make_spec(), T0)

    explanation = site.scheduler.explain(site.job(job.id))

    silent = f"it is not connected: its last request came at {render_instant(T0)}"
    assert [(each.worker, each.text) for each in explanation.workers] == [
        ("broken", silent),
        ("gone", silent),
    ]
    assert explanation.reasons == ["no worker that could run it is connected now: broken"]


def test_a_worker_that_is_asked_to_drain_is_draining() -> None:
    site = Site()
    site.poll()
    site.apply(Drain("a"), T0)

    [reason], _ = site.scheduler.explain_workers(ReadyKey("default", "work"))

    assert reason.obstacle == "draining"


def test_a_worker_that_announces_its_end_is_draining() -> None:
    site = Site()
    lease = site.leased()
    site.report_in(is_draining=True, running=[lease.key])

    [reason], _ = site.scheduler.explain_workers(ReadyKey("default", "work"))

    assert reason.obstacle == "draining"


def test_a_worker_that_has_not_come_back_after_a_restart_says_so() -> None:
    site, lease = crashed()
    site.scheduler.expect_worker(lease, NEXT)

    [reason], _ = site.scheduler.explain_workers(ReadyKey("default", "work"))

    assert reason.text == "it has not sent a request since the server started"


def test_only_the_requirements_that_are_not_met_are_named() -> None:
    server = Server(slots=0)
    has = {"gpu": 1_000, "ram": 2_000}
    server.attach(worker_spec("a", slots=2, labels={"zone": "a", "os": "bsd"}, resources=has))
    zone, system = Condition("zone", "=", ("a",)), Condition("os", "=", ("linux",))
    both = Requirements((zone, system), (("gpu", 1_000), ("ram", 3_000)))
    small = Requirements((zone,), (("gpu", 1_000), ("ram", 1_000)))

    [unmet], _ = server.scheduler.explain_workers(ReadyKey("default", "work", requirements=both))
    server.submit(JobSpec("work", options=Options(requirements=small)))
    server.run(T0)
    [short], _ = server.scheduler.explain_workers(ReadyKey("default", "work", requirements=small))

    assert unmet.text == (
        "its label os is bsd, and the job requires os = linux; it has 2 ram, and the job requires 3"
    )
    assert short.text == "0 gpu is free, and the job requires 1"
