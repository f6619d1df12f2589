"""The blocking client against a real HTTP server."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator

import pytest

from schedo.client import Client, JobFailed, SyncJobHandle, Unreachable
from schedo.core.states import State
from schedo.errors import Invalid, NotFound, SchedoError
from tests.client.server import JOB_ID, FakeServer, Reply, job_record, problem, schedule_record

JOB = f"/v1/jobs/{JOB_ID}"


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.url, "t0ken-t0ken-t0ken", timeout=10) as client:
        yield client


def test_a_wait_that_ends_early_is_repeated_after_a_pause(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("schedo.client.sync.time.sleep", pauses.append)
    server.on("GET", f"{JOB}/wait", 202, job_record(state="running"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed"))

    assert client.wait(JOB_ID).state is State.COMPLETED
    assert pauses == [0.5]


def test_submit_returns_the_job(server: FakeServer, client: Client) -> None:
    server.on("POST", "/v1/jobs", 201, job_record(state="scheduled"))

    job = client.submit("email.send", {"to": "ada"}, delay="5m", tags=["x"])

    assert (job.id, job.state, job.task, job.is_conflict) == (
        JOB_ID,
        State.SCHEDULED,
        "email.send",
        False,
    )
    assert server.requests[0].json == {
        "task": "email.send",
        "payload": {"to": "ada"},
        "delay": "5m",
        "tags": ["x"],
    }
    assert server.requests[0].headers["authorization"] == "Bearer t0ken-t0ken-t0ken"


def test_an_existing_job_with_the_unique_key_is_a_conflict(
    server: FakeServer, client: Client
) -> None:
    server.on("POST", "/v1/jobs", 200, job_record(conflict=True))

    assert client.submit("t", unique="k").is_conflict


def test_a_batch_returns_its_jobs_in_order(server: FakeServer, client: Client) -> None:
    refused = problem(422, "invalid", "priority is too large")
    items = [{"status": 201, "job": job_record()}, {"status": 422, "problem": refused}]
    server.on("POST", "/v1/jobs:batch", 200, {"items": items})

    made, error = client.submit_many([{"task": "a"}, {"task": "b", "priority": 99}])

    assert isinstance(made, SyncJobHandle)
    assert isinstance(error, Invalid)
    assert server.requests[0].json[1] == {"task": "b", "payload": None, "priority": 99}


def test_a_refused_job_of_a_batch_has_its_error_at_its_position(
    server: FakeServer, client: Client
) -> None:
    refused = problem(422, "invalid", "/task: this field is required")
    items = [{"status": 422, "problem": refused}, {"status": 201, "job": job_record()}]
    server.on("POST", "/v1/jobs:batch", 200, {"items": items})

    error, made = client.submit_many([{"payload": 1}, {"task": "b"}])

    assert isinstance(error, Invalid)
    assert isinstance(made, SyncJobHandle)
    assert server.requests[0].json[0] == {"payload": 1}


def test_result_waits_until_the_job_has_ended(server: FakeServer, client: Client) -> None:
    server.on("GET", JOB, 200, job_record())
    server.on("GET", f"{JOB}/wait", 200, job_record(state="running"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed", result=[1, 2]))

    result = client.get(JOB_ID).result()

    assert result == [1, 2]
    assert len(server.requests) == 3


def test_a_result_that_does_not_come_in_time_raises_a_timeout(
    server: FakeServer, client: Client
) -> None:
    server.on("GET", JOB, 200, job_record(state="running"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="running"))

    with pytest.raises(TimeoutError, match=f"job {JOB_ID} is still running"):
        client.get(JOB_ID).result(timeout=0)


def test_the_result_of_a_failed_job_is_its_error(server: FakeServer, client: Client) -> None:
    failed = job_record(state="failed", error={"type": "ValueError", "message": "no such address"})
    server.on("GET", JOB, 200, failed)

    with pytest.raises(JobFailed, match="no such address") as caught:
        client.get(JOB_ID).result()

    assert caught.value.error["type"] == "ValueError"


def test_a_list_goes_through_all_pages(server: FakeServer, client: Client) -> None:
    first = {"items": [job_record(id="A"), job_record(id="B")], "next_cursor": "c1"}
    server.on("GET", "/v1/jobs", 200, first)
    server.on("GET", "/v1/jobs", 200, {"items": [job_record(id="C")]})

    jobs = list(client.list_jobs(state="failed"))

    assert [job.id for job in jobs] == ["A", "B", "C"]
    assert server.requests[1].target == "/v1/jobs?state=failed&limit=100&cursor=c1"


def test_a_list_requests_no_more_than_its_limit(server: FakeServer, client: Client) -> None:
    page = {"items": [job_record(id="A"), job_record(id="B")], "next_cursor": "c1"}
    server.on("GET", "/v1/jobs", 200, page)

    jobs = list(client.list_jobs(limit=2))

    assert len(jobs) == 2
    assert [request.target for request in server.requests] == ["/v1/jobs?limit=2"]


def test_a_handle_changes_its_job_and_updates_its_record(
    server: FakeServer, client: Client
) -> None:
    server.on("GET", JOB, 200, job_record())
    server.on("PATCH", JOB, 200, job_record(priority=4))
    server.on("POST", f"{JOB}:run", 200, job_record(attempt=1))
    server.on("POST", f"{JOB}:cancel", 200, job_record(state="cancelled"))
    server.on("POST", f"{JOB}:retry", 200, job_record(state="queued"))
    job = client.get(JOB_ID)

    assert job.reschedule(priority=4).record["priority"] == 4
    assert job.run_now().record["attempt"] == 1
    assert job.cancel().is_final
    assert job.retry().state is State.QUEUED


def test_schedules_are_made_listed_triggered_and_deleted(
    server: FakeServer, client: Client
) -> None:
    path = "/v1/schedules/nightly"
    server.on("PUT", path, 201, schedule_record())
    server.on("PUT", path, 200, schedule_record())
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record()]})
    server.on("POST", f"{path}:trigger", 201, {"job": job_record()})
    server.on("POST", f"{path}:trigger", 200, {"skipped_overlap": True, "blocking_job": "B"})
    server.reply("DELETE", path, Reply(204))

    made, is_new = client.put_schedule("nightly", cron="0 3 * * *", task="shell")
    _, is_new_again = client.put_schedule("nightly", cron="0 3 * * *", task="shell")
    triggered, skipped = client.trigger_schedule("nightly"), client.trigger_schedule("nightly")
    client.delete_schedule("nightly")

    assert (made["name"], is_new, is_new_again) == ("nightly", True, False)
    assert [record["name"] for record in client.list_schedules()] == ["nightly"]
    assert triggered.job is not None
    assert (skipped.job, skipped.skipped_by) == (None, "B")


def test_queues_are_listed_and_limited(server: FakeServer, client: Client) -> None:
    server.on("GET", "/v1/queues", 200, {"items": [{"name": "default"}]})
    server.on("PATCH", "/v1/queues/mail", 200, {"name": "mail", "concurrency": 2})

    assert client.list_queues() == [{"name": "default"}]
    assert client.set_queue("mail", concurrency=2)["concurrency"] == 2


def test_an_error_response_is_raised_with_the_servers_message(
    server: FakeServer, client: Client
) -> None:
    server.on("GET", JOB, 404, problem(404, "not-found", f"there is no job {JOB_ID}"))

    with pytest.raises(NotFound, match=f"there is no job {JOB_ID}") as caught:
        client.get(JOB_ID)

    assert caught.value.__notes__ == ["request r-1"]


# Connections.


def test_requests_share_one_connection(server: FakeServer, client: Client) -> None:
    server.on("GET", JOB, 200, job_record())

    client.get(JOB_ID)
    client.get(JOB_ID)

    assert len({request.connection for request in server.requests}) == 1


def test_a_forked_process_does_not_use_the_connections_of_its_parent(
    server: FakeServer, client: Client
) -> None:
    server.on("GET", JOB, 200, job_record())
    client.get(JOB_ID)

    pid = os.fork()
    if not pid:
        try:
            client.get(JOB_ID)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    client.get(JOB_ID)

    first, forked, last = (request.connection for request in server.requests)
    assert first == last != forked


def test_two_threads_of_a_forked_process_use_no_connection_of_its_parent(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET", JOB, 200, job_record())
    client.get(JOB_ID)
    transport = client._transport
    close, taken = transport.close, []

    def take_meanwhile() -> None:
        monkeypatch.setattr(transport, "close", close)
        taken.append(transport._take_idle())  # as another thread does
        close()

    monkeypatch.setattr(transport, "close", take_meanwhile)
    monkeypatch.setattr("os.getpid", lambda: -1)

    assert [transport._take_idle(), *taken] == [None, None]


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(
    server: FakeServer, client: Client
) -> None:
    body = json.dumps(job_record()).encode()
    server.reply("POST", f"{JOB}:retry", Reply(200, body, closes=True))
    server.reply("POST", f"{JOB}:retry", Reply(200, body))

    client.retry(JOB_ID)
    assert server.closed.acquire(timeout=10)
    client.retry(JOB_ID)

    assert len({request.connection for request in server.requests}) == 2


def test_a_submit_is_repeated_once_when_a_reused_connection_drops(
    server: FakeServer, client: Client
) -> None:
    server.on("GET", JOB, 200, job_record())
    server.reply("POST", "/v1/jobs", Reply(0))
    server.on("POST", "/v1/jobs", 201, job_record())
    client.get(JOB_ID)

    job = client.submit("t")

    keys = [request.headers["idempotency-key"] for request in server.requests[1:]]
    assert job.id == JOB_ID
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_request_that_is_not_repeatable_is_not_repeated(
    server: FakeServer, client: Client
) -> None:
    server.on("GET", JOB, 200, job_record())
    server.reply("POST", f"{JOB}:retry", Reply(0))
    client.get(JOB_ID)

    with pytest.raises(Unreachable, match="may or may not have been carried out"):
        client.retry(JOB_ID)

    assert len(server.requests) == 2


def test_a_fresh_connection_that_drops_is_an_error(server: FakeServer, client: Client) -> None:
    server.reply("GET", JOB, Reply(0))

    with pytest.raises(Unreachable, match="broke before the response arrived"):
        client.get(JOB_ID)

    assert len(server.requests) == 1


def test_a_refused_connection_has_a_plain_message() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with (
            Client(url) as client,
            pytest.raises(Unreachable, match=f"^cannot reach schedo at {url}: connection refused$"),
        ):
            client.get(JOB_ID)


def test_a_request_to_a_server_that_never_responds_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout=0.05) as client, pytest.raises(Unreachable, match="timed out"):
            client.get(JOB_ID)


def test_a_response_of_another_kind_of_server_is_recognized(
    server: FakeServer, client: Client
) -> None:
    server.reply("GET", JOB, Reply(200, b"<html>", {"Content-Type": "text/html"}))

    with pytest.raises(SchedoError, match="not a schedo server: it answered with text/html"):
        client.get(JOB_ID)


def test_a_path_in_the_url_precedes_every_target(server: FakeServer) -> None:
    server.on("GET", f"/below{JOB}", 200, job_record())

    with Client(f"{server.url}/below/") as client:
        assert client.get(JOB_ID).id == JOB_ID


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://h",
        "http://",
        "http://h:port",
        "http://h:99999",
        "http://u:p@h",
        "http://h?x=1",
    ],
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="url"):
        Client(url)


@pytest.mark.parametrize("token", ["", "two words", "a\r\nX: y", "ü" * 20], ids=repr)
def test_a_token_that_cannot_be_a_header_is_refused(token: str) -> None:
    with pytest.raises(Invalid, match="token"):
        Client("http://127.0.0.1:1", token)


def test_the_token_is_not_in_any_repr() -> None:
    with Client("http://127.0.0.1:1", "t0ken-t0ken-t0ken") as client:
        address = client._transport.address

    assert "t0ken" not in repr(address)
