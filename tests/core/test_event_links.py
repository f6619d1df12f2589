"""With a public URL, the facts of an event have the address of the screen that shows it."""

from __future__ import annotations

import json

from schedo.core.expectation_table import PutExpectation
from schedo.core.expectations import ExpectationSpec
from schedo.core.ids import render_id
from schedo.core.leases import Failed
from schedo.core.model import Failure, Job, JobSpec, OnFailure, Options, Retry, Rule
from tests.core.builders import HOUR, MINUTE, SECOND, T0
from tests.core.expecting import GIVE_UP, WITHIN
from tests.core.expecting import event_jobs as expectation_jobs
from tests.core.scheduled import made
from tests.core.server import Server
from tests.core.test_event_jobs import event_jobs as failure_jobs


class PublicServer(Server):
    page_url = "https://ops.example.org/schedo"


def url_of(job: Job, facts: str) -> str | None:
    found: str | None = json.loads(job.payload or b"null")[facts].get("url")
    return found


def fail(server: Server) -> Job:
    """Run a job until it has finally failed."""
    options = Options(retry=Retry(max_attempts=1), on_failure=OnFailure("alert"))
    job = server.submit(JobSpec("backup", options=options))
    server.run(T0)
    server.report(job.id, Failed(Failure("oops", "it broke")), SECOND)
    return job


def test_the_facts_of_a_failure_have_the_address_of_the_job() -> None:
    server = PublicServer()

    job = fail(server)

    (event,) = failure_jobs(server)
    assert url_of(event, "failed") == f"https://ops.example.org/schedo/jobs/{render_id(job.id)}"


def test_without_a_public_url_there_is_no_address() -> None:
    server = Server()

    fail(server)

    (event,) = failure_jobs(server)
    assert url_of(event, "failed") is None


def test_the_facts_of_a_missed_run_have_the_address_of_the_schedule() -> None:
    server = PublicServer()
    schedule = made(server, expect=WITHIN)
    (run,) = server.run(MINUTE)

    server.report(run, GIVE_UP, MINUTE + SECOND)
    server.settle(MINUTE + 31 * SECOND)

    (event,) = expectation_jobs(server)
    address = f"https://ops.example.org/schedo/schedules/{schedule.spec.name}"
    assert url_of(event, "expectation") == address


def test_the_facts_of_a_missed_beat_have_the_address_of_the_list() -> None:
    server = PublicServer()
    server.apply(PutExpectation(ExpectationSpec("nas", Rule(every_us=HOUR), WITHIN)), T0)

    server.settle(T0 + 2 * HOUR)

    (event, *_) = expectation_jobs(server)
    assert url_of(event, "expectation") == "https://ops.example.org/schedo/expectations"
