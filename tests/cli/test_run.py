"""`schedo run`: the requests it sends, and the exit code of --wait."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedo.cli.submission import find_exit_code
from schedo.client.records import JobView
from tests.cli.conftest import Call
from tests.client.server import JOB_ID, FakeServer, job_record, problem, schedule_record


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["echo $HOME | wc"], "echo $HOME | wc"),
        (["--", "ls", "-l", "--wait"], ["ls", "-l", "--wait"]),
        (["--", "echo hi"], ["echo hi"]),
        (["echo", "$(id)", "a;b"], ["echo", "$(id)", "a;b"]),
        (["--", "-x"], ["-x"]),
        (["--", "@file", "--", "`id`"], ["@file", "--", "`id`"]),
    ],
    ids=["a shell line", "after --", "one word after --", "several words", "hyphen", "hostile"],
)
def test_an_argv_list_is_sent_unchanged(
    server: FakeServer, schedo: Call, args: list[str], command: object
) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())

    result = schedo("run", *args)

    assert result.exit_code == 0
    assert server.requests[0].json == {"task": "shell", "payload": {"command": command}}


def test_a_delayed_command_prints_when_it_will_run(server: FakeServer, schedo: Call) -> None:
    later = job_record(state="scheduled", scheduled_at="2999-01-01T00:00:00.000000Z")
    server.on("POST", "/v1/jobs", 201, later)

    result = schedo("run", "true", "--in", "5s", "--queue", "mail", "--timeout", "1m")

    assert result.stdout.startswith(f"{JOB_ID}  scheduled for 2999-01-01 00:00 (in ")
    assert server.requests[0].json == {
        "task": "shell",
        "payload": {"command": "true"},
        "delay": "5s",
        "queue": "mail",
        "timeout": "1m",
    }


def test_the_time_of_at_is_sent_with_its_offset(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())

    schedo("run", "true", "--at", "2999-01-01T00:00:00+01:00", "--cwd", "/tmp")

    assert server.requests[0].json["run_at"] == "2998-12-31T23:00:00.000000Z"
    assert server.requests[0].json["payload"]["cwd"] == "/tmp"


def test_a_time_in_the_past_gives_a_warning(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())

    past = schedo("run", "true", "--at", "2020-01-01 12:00")
    later = schedo("run", "true", "--at", "2999-01-01 12:00")

    assert (past.exit_code, past.stdout) == (0, f"{JOB_ID}  queued\n")
    assert past.stderr.startswith("schedo: warning: 2020-01-01T12:00:00")
    assert past.stderr.endswith(" has passed; the job is due now\n")
    assert later.stderr == ""


def test_cron_creates_a_named_schedule(server: FakeServer, schedo: Call) -> None:
    server.on(
        "PUT",
        "/v1/schedules/nightly",
        201,
        schedule_record(warnings=["a warning"], effect="created"),
    )

    result = schedo("run", "true", "--cron", "0 3 * * *", "--name", "nightly", "--tz", "UTC")

    assert result.stdout.startswith("schedule nightly created; next fire 2099-11-21 03:00:00.000")
    assert result.stderr == "schedo: warning: a warning\n"
    assert server.requests[0].json == {
        "cron": "0 3 * * *",
        "tz": "UTC",
        "task": "shell",
        "payload": {"command": "true"},
    }


def wait_for(server: FakeServer, **fields: Any) -> None:
    outputs = [
        {"attempt": 1, "stream": "stdout", "text": "out", "total_bytes": 3, "truncated": False},
        {"attempt": 1, "stream": "stderr", "text": "err", "total_bytes": 3, "truncated": False},
    ]
    server.on("POST", "/v1/jobs", 201, job_record())
    server.on("GET", f"/v1/jobs/{JOB_ID}/wait", 200, job_record(state="running", task="shell"))
    server.on("GET", f"/v1/jobs/{JOB_ID}/wait", 200, job_record(**{"task": "shell", **fields}))
    server.on("GET", f"/v1/jobs/{JOB_ID}/progress", 200, {"items": []})
    server.on("GET", f"/v1/jobs/{JOB_ID}/output", 200, {"items": outputs})


def test_wait_prints_the_output_and_exits_with_the_commands_code(
    server: FakeServer, schedo: Call
) -> None:
    failure = {"type": "exit-code", "message": "exit code 7", "exit_code": 7}
    wait_for(server, state="failed", error=failure)

    result = schedo("run", "exit 7", "--wait")

    assert (result.exit_code, result.stdout, result.stderr) == (7, "out", "err")


def test_wait_reports_why_a_job_ended_without_an_exit_code(
    server: FakeServer, schedo: Call
) -> None:
    wait_for(server, state="failed", error={"type": "timeout", "message": "it took over 1m"})

    result = schedo("run", "sleep 99", "--wait")

    assert result.exit_code == 1
    assert result.stderr == f"errschedo: job {JOB_ID} failed: timeout: it took over 1m\n"


def test_wait_with_json_prints_one_record(server: FakeServer, schedo: Call) -> None:
    wait_for(server, state="completed", result={"exit_code": 0})

    result = schedo("run", "true", "--wait", "--json")

    assert json.loads(result.stdout)["state"] == "completed"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"state": "completed", "result": {"exit_code": 0}}, 0),
        ({"state": "completed", "result": {"exit_code": 3}}, 3),
        ({"state": "completed"}, 0),
        ({"state": "failed", "error": {"exit_code": 2}}, 2),
        ({"state": "failed", "error": {"signal": "SIGKILL"}}, 137),
        ({"state": "failed", "error": {"type": "lost"}}, None),
        ({"state": "cancelled"}, None),
        ({"state": "expired"}, None),
    ],
    ids=str,
)
def test_the_exit_code_is_the_one_a_shell_would_show(
    fields: dict[str, Any], code: int | None
) -> None:
    assert find_exit_code(JobView(job_record(task="shell", **fields))) == code


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([], "give a command: 'a shell line'"),
        (["--"], "a command must follow --"),
        (["a", "--", "b"], "before or after --, not both"),
        (["a", "--in", "1s", "--cron", "* * * * *"], "one of --in, --at and --cron"),
        (["a", "--cron", "* * * * *"], "name it with --name"),
        (
            ["a", "--cron", "* * * * *", "--name", "x", "--unique", "k"],
            "--unique cannot be used with --cron",
        ),
        (
            ["a", "--cron", "0", "3", "bench", "docs"],
            "'0' is only one field; put the expression in",
        ),
        (["a", "--name", "x"], "--name requires --cron"),
        (["a", "--tz", "UTC"], "--tz requires --cron"),
        (["a", "--cron", "* * * * *", "--name", "x", "--wait"], "a schedule does not end"),
        (["a", "--at", "soon"], "'soon' is not a time; write"),
        (["a", "--token-file", "/nowhere"], "cannot be read"),
        (["a", "--url", "localhost:8080"], "write it as http://127.0.0.1:8080"),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_2_and_sends_no_request(
    server: FakeServer, schedo: Call, args: list[str], reason: str
) -> None:
    result = schedo("run", *args)

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert server.requests == []


def test_a_refusal_names_the_fields_in_one_sentence(server: FakeServer, schedo: Call) -> None:
    errors = [{"pointer": "/queue", "detail": "'a b' has a space"}]
    refusal = problem(422, "invalid", "the request is not valid", errors=errors)
    server.on("POST", "/v1/jobs", 422, refusal)

    result = schedo("run", "true", "--queue", "a b")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "schedo: the request is not valid; --queue: 'a b' has a space\n"
