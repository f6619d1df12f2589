"""A dry run of an invocation: who could take it, and how it would end."""

from __future__ import annotations

from schedo.core.commands import ConfigureQueue
from schedo.core.model import PauseScope, ReadyKey
from schedo.core.pause_commands import PauseServer
from tests.core.builders import T0, make_spec, worker_spec
from tests.core.remote_site import Site
from tests.core.server import Server

WORK = ReadyKey("default", "work")


def test_a_dry_run_counts_the_workers_that_could_take_the_job() -> None:
    server = Server(slots=0)
    server.attach(worker_spec("full", slots=1))
    server.attach(worker_spec("mail", tasks=frozenset({"mail"})))
    server.submit(make_spec())
    server.run(T0)
    server.attach(worker_spec("free", slots=1))

    found = server.scheduler.dry_run(WORK, 1, T0)

    assert (found.refusal, found.able, found.considered) == (None, 1, 3)
    assert {each.worker: each.text for each in found.workers} == {
        "full": "all 1 slots are taken",
        "free": "it could take the job now",
        "mail": "it does not offer task work",
    }
    assert not server.scheduler.has_changes


def test_a_worker_between_two_polls_could_take_the_job() -> None:
    site = Site()
    site.report_in()

    found = site.scheduler.dry_run(WORK, 1, T0)

    assert (found.refusal, found.able) == (None, 1)
    assert found.workers[0].obstacle is None
    assert found.workers[0].text == "it has a free slot, and gets the job when it polls again"


def test_a_dry_run_says_with_which_error_the_invocation_would_end() -> None:
    server = Server(slots=2)

    assert server.scheduler.dry_run(WORK, 2, T0).refusal is None
    refusal = server.scheduler.dry_run(WORK, 3, T0).refusal
    assert str(refusal) == "1 workers can take at most 2 jobs at once, not 3"

    server.apply(ConfigureQueue("default", {"concurrency": 1}), T0)
    refusal = server.scheduler.dry_run(WORK, 2, T0).refusal
    assert str(refusal) == "queue default is at its concurrency limit"

    server.apply(PauseServer((PauseScope.STARTS,), None, None), T0)
    refusal = server.scheduler.dry_run(WORK, 1, T0).refusal
    assert str(refusal) == "the server is paused: no job starts until it is resumed"
