"""A final failure makes the job that `on_failure` names, once and in the same commit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedo.core.commands import FailRetry, RetryJob
from schedo.core.event_jobs import Facts, add_facts
from schedo.core.ids import render_id
from schedo.core.leases import Blame, Failed, Lost
from schedo.core.model import Failure, Job, OnFailure, Options, Retry, Trigger
from schedo.core.states import State
from tests.core.builders import HOUR, MINUTE, SECOND, T0, make_spec, tries, worker_spec
from tests.core.scheduled import made
from tests.core.server import Server

ALERT = OnFailure("alert", b'{"channel":"ops"}', queue="alerts")
OOPS = Failure("exit-code", "it broke", exit_code=3, traceback="a long text")
VALUES = {"id": "7", "attempt": 2, "error": {"type": "oops"}, "tags": ("a", "b")}
FACTS = Facts("failed", VALUES, "/jobs/7")


def event_jobs(server: Server) -> list[Job]:
    """Return the event jobs of the server, oldest first."""
    jobs = {**server.store.jobs, **server.scheduler._jobs.changes.jobs}
    return [jobs[ident] for ident in sorted(jobs) if jobs[ident].trigger is Trigger.ON_FAILURE]


def failing(server: Server, **options: Any) -> Job:
    """Run a job with an alert until it has failed."""
    options.setdefault("retry", Retry(max_attempts=1))
    options.setdefault("on_failure", ALERT)
    spec = make_spec("backup", queue="nightly")
    job = server.submit(type(spec)(spec.task, queue=spec.queue, options=Options(**options)))
    server.run(T0)
    server.report(job.id, Failed(OOPS), SECOND)
    return job


def payload_of(job: Job) -> Any:
    assert job.payload is not None
    return json.loads(job.payload)


def test_a_failed_job_makes_the_job_that_it_names_with_the_facts_in_its_payload() -> None:
    server = Server()

    job = failing(server, tags=("db",), meta={"owner": "ada"})

    (event,) = event_jobs(server)
    assert (event.task, event.queue, event.state) == ("alert", "alerts", State.QUEUED)
    payload = payload_of(event)
    assert payload.pop("channel") == "ops"
    assert payload == {
        "failed": {
            "id": render_id(job.id),
            "task": "backup",
            "queue": "nightly",
            "attempt": 1,
            "failures": 1,
            "losses": 0,
            "created_at": "1970-01-01T00:00:00.000000Z",
            "event": "failed",
            "at": "1970-01-01T00:00:01.000000Z",
            "error": {"type": "exit-code", "message": "it broke", "exit_code": 3},
            "tags": ["db"],
            "meta": {"owner": "ada"},
        }
    }


def test_the_failure_and_its_event_job_are_in_the_same_commit() -> None:
    server = Server()
    job = failing(server)
    (event,) = event_jobs(server)

    server.take()

    assert server.taken is not None
    assert {each.id for each in server.taken.jobs} == {job.id, event.id}


def test_a_crash_before_the_commit_loses_both_and_the_next_failure_makes_one() -> None:
    server = Server()
    job = failing(server, retry=Retry(max_attempts=2))
    server.crash(2 * SECOND)
    assert event_jobs(server) == []
    server.attach(worker_spec())
    server.run(2 * SECOND)

    server.report(job.id, Failed(OOPS, retryable=False), 3 * SECOND)
    server.round(3 * SECOND)
    server.crash(4 * SECOND)

    assert len(event_jobs(server)) == 1


def test_only_the_last_attempt_makes_an_event_job() -> None:
    server = Server()

    job = failing(server, retry=tries(2))
    assert event_jobs(server) == []
    server.run(MINUTE)
    server.report(job.id, Failed(OOPS), MINUTE)

    (event,) = event_jobs(server)
    assert payload_of(event)["failed"]["attempt"] == 2


def test_a_job_that_was_cancelled_or_has_completed_makes_no_event_job() -> None:
    server = Server()
    options = Options(on_failure=ALERT)
    spec = make_spec()
    cancelled = server.submit(type(spec)("a", run_at=HOUR, options=options))
    completed = server.submit(type(spec)("a", options=options))
    server.run(T0)

    server.cancel(cancelled.id, SECOND)
    server.complete(completed.id, SECOND)

    assert event_jobs(server) == []


def test_a_job_that_kills_its_workers_makes_an_event_job() -> None:
    server = Server()
    job = server.submit(
        type(make_spec())("a", options=Options(at_most_once=True, on_failure=ALERT))
    )
    server.settle(T0)

    server.report(job.id, Lost("the worker was lost", Blame.SOLE), SECOND)

    (event,) = event_jobs(server)
    assert payload_of(event)["failed"]["error"]["type"] == "lost"


def test_a_job_that_its_schedule_fires_before_the_retry_makes_an_event_job() -> None:
    server = Server()
    job = failing(server, retry=tries(2))
    server.round(SECOND)

    server.send(FailRetry(job.id, server.job(job.id).key), 2 * SECOND)

    assert server.state(job.id) is State.FAILED
    assert len(event_jobs(server)) == 1


def test_the_failure_of_an_event_job_makes_no_further_job() -> None:
    server = Server()
    server.attach(worker_spec("a", task_defaults={"alert": Options(on_failure=ALERT)}))
    failing(server)
    (event,) = event_jobs(server)
    server.run(SECOND)

    server.report(event.id, Failed(OOPS, retryable=False), 2 * SECOND)

    assert server.state(event.id) is State.FAILED
    assert event_jobs(server) == [event]


def test_a_job_that_is_retried_by_hand_and_fails_again_makes_another_event_job() -> None:
    server = Server()
    job = failing(server)
    server.round(SECOND)
    server.change(RetryJob(job.id), 2 * SECOND)
    server.run(2 * SECOND)

    server.report(job.id, Failed(OOPS), 3 * SECOND)

    assert len(event_jobs(server)) == 2


def test_a_task_may_name_the_event_job_of_its_jobs() -> None:
    server = Server()
    server.attach(worker_spec("a", task_defaults={"backup": Options(on_failure=ALERT)}))

    failing(server, on_failure=None)

    assert [each.task for each in event_jobs(server)] == ["alert"]


def test_the_facts_name_the_schedule_of_a_failed_run() -> None:
    server = Server()
    options = Options(on_failure=ALERT, retry=Retry(max_attempts=1))
    made(server, name="nightly", job=type(make_spec())("backup", options=options))
    (job_id,) = server.run(MINUTE)

    server.fail(job_id, MINUTE + SECOND)

    (event,) = event_jobs(server)
    failed = payload_of(event)["failed"]
    assert (failed["schedule"], failed["scheduled_for"]) == (
        "nightly",
        "1970-01-01T00:01:00.000000Z",
    )
    assert event.schedule_id is None


def test_an_event_job_is_retried_unless_it_says_otherwise() -> None:
    server = Server()
    once = Options(retry=Retry(max_attempts=1))
    url = b'{"url":"https://hooks.test/"}'

    failing(server, on_failure=OnFailure("http", url))
    failing(server, on_failure=OnFailure("http", url, options=once))

    attempts = [job.options.retry and job.options.retry.max_attempts for job in event_jobs(server)]
    assert attempts == [5, 1]


@pytest.mark.parametrize(
    ("task", "payload", "with_facts"),
    [
        ("alert", b"null", {"failed": FACTS.values}),
        ("http", b'{"url":"u"}', {"url": "u", "body": FACTS.values}),
        ("http", b'{"url":"u","method":"GET"}', {"url": "u", "method": "GET"}),
        ("http", b'{"url":"u","body":"text"}', {"url": "u", "body": "text"}),
        (
            "http",
            b'{"url":"u","body":{"text":"it failed"}}',
            {"url": "u", "body": {"text": "it failed", "failed": FACTS.values}},
        ),
        (
            "shell",
            b'{"command":"mail","env":{"TO":"ada"}}',
            {
                "command": "mail",
                "env": {
                    "TO": "ada",
                    "SCHEDO_FAILED_ID": "7",
                    "SCHEDO_FAILED_ATTEMPT": "2",
                    "SCHEDO_FAILED_ERROR_TYPE": "oops",
                    "SCHEDO_FAILED_TAGS": "a,b",
                },
            },
        ),
        ("shell", b'{"command":"mail","env":7}', {"command": "mail", "env": 7}),
    ],
)
def test_each_task_gets_the_facts_where_it_can_use_them(
    task: str, payload: bytes, with_facts: dict[str, Any]
) -> None:
    expected = json.loads(json.dumps(with_facts))  # with lists for tuples

    assert json.loads(add_facts(task, payload, FACTS)) == expected


def test_an_object_among_the_facts_is_one_variable_as_json() -> None:
    facts = Facts("failed", {"meta": {"owner": "ada"}}, "/jobs/7")

    env = json.loads(add_facts("shell", b'{"command":"mail"}', facts))["env"]

    assert env == {"SCHEDO_FAILED_META": '{"owner":"ada"}'}
