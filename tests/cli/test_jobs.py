"""`schedo jobs`, with tables and with JSON."""

from __future__ import annotations

import base64
import json

from tests.cli.conftest import Call
from tests.client.server import JOB_ID, FakeServer, job_record, problem

JOB = f"/v1/jobs/{JOB_ID}"
DONE = "2020-01-01T00:00:00.000000Z"


def test_a_list_is_a_table(server: FakeServer, schedo: Call) -> None:
    failed = job_record(
        state="failed",
        failed_at=DONE,
        attempt=7,
        failures=5,
        losses=1,
        task="shell",
        payload={"command": "false"},
        error={"type": "exit-code", "message": "exit code 1"},
    )
    server.on("GET", "/v1/jobs", 200, {"items": [failed]})

    result = schedo("jobs", "ls", "--state", "failed", "--queue", "default")

    headers, row = result.stdout.splitlines()
    assert result.exit_code == 0
    assert headers.split() == ["ID", "STATE", "TASK", "QUEUE", "WHEN", "FAILURES", "WORK"]
    assert row.split()[:4] == [JOB_ID, "failed", "shell", "default"]
    assert row.endswith("5/5       exit-code: exit code 1")
    assert server.requests[0].target == "/v1/jobs?state=failed&queue=default&limit=20"


def test_a_list_as_json_is_the_records(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/jobs", 200, {"items": [job_record()]})

    result = schedo("jobs", "ls", "--json")

    assert json.loads(result.stdout) == [job_record()]
    assert result.stderr == ""


def test_control_characters_in_a_name_are_escaped(server: FakeServer, schedo: Call) -> None:
    hostile = job_record(task="\x1b[2J\x1b]0;owned\x07", queue="a\nb", payload="\u202e")
    server.on("GET", "/v1/jobs", 200, {"items": [hostile]})
    server.on("GET", JOB, 200, hostile)
    server.on("GET", f"{JOB}/attempts", 200, {"items": []})
    server.on("GET", f"{JOB}/why", 200, {"why": "it waits for \x07"})

    for result in (schedo("jobs", "ls"), schedo("jobs", "show", JOB_ID)):
        assert result.exit_code == 0
        assert not set(result.stdout) & {"\x1b", "\x07", "\u202e"}
        assert r"\x1b[2J" in result.stdout


def test_show_prints_a_job_and_what_it_waits_for(server: FakeServer, schedo: Call) -> None:
    server.on("GET", JOB, 200, job_record())
    server.on("GET", f"{JOB}/attempts", 200, {"items": []})
    server.on("GET", f"{JOB}/why", 200, {"why": "all 16 slots are busy"})

    result = schedo("jobs", "show", JOB_ID)

    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["state"] == "queued"
    assert lines["payload"] == '{"to": "ada"}'
    assert lines["created_at"].startswith("2026-11-20 11:00:00.000+00:00 (")
    assert lines["why"] == "all 16 slots are busy"


def test_show_lists_failed_attempts_below_the_job(server: FakeServer, schedo: Call) -> None:
    attempt = {
        "attempt": 1,
        "outcome": "failed",
        "ended_at": DONE,
        "error": {"message": "timed out"},
    }
    server.on("GET", JOB, 200, job_record(state="completed", completed_at=DONE))
    server.on("GET", f"{JOB}/attempts", 200, {"items": [attempt]})

    result = schedo("jobs", "show", JOB_ID)

    assert result.stdout.splitlines()[-2].split() == ["ATTEMPT", "OUTCOME", "ENDED", "ERROR"]
    assert result.stdout.splitlines()[-1].endswith("timed out")


def test_an_unknown_job_is_exit_code_1(server: FakeServer, schedo: Call) -> None:
    server.on("GET", JOB, 404, problem(404, "not-found", f"there is no job {JOB_ID}"))

    result = schedo("jobs", "show", JOB_ID)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"schedo: there is no job {JOB_ID}\n"


def test_cancel_continues_after_a_refusal_and_reports_it(server: FakeServer, schedo: Call) -> None:
    done = problem(409, "illegal-transition", "job B is completed; it cannot be cancelled")
    server.on("POST", "/v1/jobs/A:cancel", 200, job_record(id="A", state="cancelled"))
    server.on("POST", "/v1/jobs/B:cancel", 409, done)
    server.on("POST", "/v1/jobs/C:cancel", 200, job_record(id="C", state="running"))

    result = schedo("jobs", "cancel", "A", "B", "C")

    assert result.exit_code == 1
    assert result.stdout == "A  cancelled\nC  running (stopping)\n"
    assert result.stderr == "schedo: job B is completed; it cannot be cancelled\n"


def test_retry_prints_the_new_state(server: FakeServer, schedo: Call) -> None:
    server.on("POST", f"{JOB}:retry", 200, job_record())

    result = schedo("jobs", "retry", JOB_ID, "--json")

    assert result.exit_code == 0
    assert [record["state"] for record in json.loads(result.stdout)] == ["queued"]


OUTPUTS = [
    {"attempt": 1, "stream": "stdout", "text": "old\n", "total_bytes": 4, "truncated": False},
    {"attempt": 2, "stream": "stdout", "text": "new\n", "total_bytes": 4, "truncated": False},
    {"attempt": 2, "stream": "stderr", "text": "oh\n", "total_bytes": 9_999, "truncated": True},
]


def test_output_prints_the_last_attempt(server: FakeServer, schedo: Call) -> None:
    server.on("GET", f"{JOB}/output", 200, {"items": OUTPUTS})

    result = schedo("jobs", "output", JOB_ID)

    assert result.stdout == "new\n"
    assert result.stderr == "oh\nschedo: stderr was 9999 bytes long; its middle was not stored\n"


def test_output_can_be_limited_to_an_attempt_and_a_stream(server: FakeServer, schedo: Call) -> None:
    server.on("GET", f"{JOB}/output", 200, {"items": OUTPUTS})

    result = schedo("jobs", "output", JOB_ID, "--attempt", "1", "--stream", "stdout")

    assert (result.stdout, result.stderr) == ("old\n", "")


def test_output_into_a_pipe_is_not_escaped(server: FakeServer, schedo: Call) -> None:
    data = b"\x1b[1m\xff\x00\r\n"
    item = {
        "attempt": 1,
        "stream": "stdout",
        "text": data.decode(errors="replace"),
        "total_bytes": len(data),
        "truncated": False,
        "encoding": "base64",
        "base64": base64.b64encode(data).decode(),
    }
    server.on("GET", f"{JOB}/output", 200, {"items": [item]})

    assert schedo("jobs", "output", JOB_ID).stdout_bytes == data
