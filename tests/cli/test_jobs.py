"""`schedo jobs`, with tables and with JSON."""

from __future__ import annotations

import base64
import json

import pytest
from click.testing import Result

from tests.cli.conftest import Call
from tests.client.server import JOB_ID, FakeServer, job_record, problem

JOB = f"/v1/jobs/{JOB_ID}"
DONE = "2020-01-01T00:00:00.000000Z"


def test_jobs_are_printed_as_a_table(server: FakeServer, schedo: Call) -> None:
    failed = job_record(
        state="failed",
        started_at="2019-12-31T23:58:55.000000Z",
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
    assert headers.split() == ["ID", "STATE", "TASK", "QUEUE", "WHEN", "TOOK", "FAILURES", "WORK"]
    assert row.split()[:4] == [JOB_ID, "failed", "shell", "default"]
    assert row.endswith("1m5s  5/5       exit-code: exit code 1")
    assert server.requests[0].target == "/v1/jobs?state=failed&queue=default&limit=20"


def test_a_list_of_jobs_as_json_is_the_records_of_the_server(
    server: FakeServer, schedo: Call
) -> None:
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
    server.on("GET", JOB, 200, job_record(state="completed", completed_at=DONE))
    server.on("GET", f"{JOB}/attempts", 200, {"items": [ATTEMPT]})

    assert_lists_attempt(schedo("jobs", "show", JOB_ID))


def test_show_ends_with_the_traceback_of_the_error(server: FakeServer, schedo: Call) -> None:
    traceback = 'Traceback (most recent call last):\n  File "shop.py", line 25\nKeyError: "exif"\n'
    error = {"type": "KeyError", "message": "'exif'", "traceback": traceback}
    started_at = "2019-12-31T23:59:58.500000Z"
    record = job_record(state="failed", started_at=started_at, failed_at=DONE, error=error)
    server.on("GET", JOB, 200, record)
    server.on("GET", f"{JOB}/attempts", 200, {"items": [ATTEMPT]})

    lines = schedo("jobs", "show", JOB_ID).stdout.splitlines()

    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("error ")] == [
        "KeyError: 'exif'"
    ]
    assert [line.split()[1] for line in lines if line.startswith("took ")] == ["1s"]
    assert lines[-4:] == ["", *traceback.splitlines()]


def test_a_job_without_output_or_progress_says_so(server: FakeServer, schedo: Call) -> None:
    server.on("GET", f"{JOB}/output", 200, {"items": []})
    server.on("GET", f"{JOB}/progress", 200, {"items": []})
    server.on("GET", JOB, 200, job_record(state="cancelled"))

    output, progress = schedo("jobs", "output", JOB_ID), schedo("jobs", "progress", JOB_ID)

    assert (output.stdout, progress.stdout) == ("", "")
    assert output.stderr == "schedo: no output is kept of this job or attempt\n"
    assert progress.stderr == "schedo: no running attempt of the job has reported progress\n"


def test_attempts_are_a_table_with_duration_worker_and_error(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", f"{JOB}/attempts", 200, {"items": [ATTEMPT]})

    assert_lists_attempt(schedo("jobs", "attempts", JOB_ID))
    assert json.loads(schedo("jobs", "attempts", JOB_ID, "--json").stdout) == [ATTEMPT]


ATTEMPT = {
    "attempt": 1,
    "outcome": "failed",
    "worker": "w1",
    "started_at": "2019-12-31T23:59:58.500000Z",
    "ended_at": DONE,
    "error": {"type": "timeout", "message": "timed out"},
}


def assert_lists_attempt(result: Result) -> None:
    headers, row = result.stdout.splitlines()[-2:]
    assert headers.split() == ["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "ERROR"]
    assert row.split()[-4:] == ["w1", "timeout:", "timed", "out"]
    assert " 1s " in row


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


def test_with_json_each_refusal_of_a_cancel_is_a_line_of_json(
    server: FakeServer, schedo: Call
) -> None:
    for name in "AB":
        gone = problem(404, "not-found", f"there is no job {name}")
        server.on("POST", f"/v1/jobs/{name}:cancel", 404, gone)

    result = schedo("jobs", "cancel", "A", "B", "--json")

    assert (result.exit_code, json.loads(result.stdout)) == (1, [])
    assert [json.loads(line) for line in result.stderr.splitlines()] == [
        {"code": "not-found", "status": 404, "detail": "there is no job A"},
        {"code": "not-found", "status": 404, "detail": "there is no job B"},
    ]


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


def test_why_prints_the_reason(server: FakeServer, schedo: Call) -> None:
    server.on("GET", f"{JOB}/why", 200, {"id": JOB_ID, "why": "no worker offers\x07 the task"})

    assert schedo("jobs", "why", JOB_ID).stdout == "no worker offers\\x07 the task\n"


def test_why_lists_the_checks_and_what_the_workers_say(server: FakeServer, schedo: Call) -> None:
    checks = [
        {"what": "worker", "ok": False, "permanent": True, "text": "no worker offers label gpu"},
        {"what": "slot", "ok": False, "permanent": False, "text": "all slots are taken"},
        {"what": "earlier_run", "ok": True, "permanent": False, "text": "none"},
    ]
    workers = [{"worker": "a", "ok": False, "permanent": True, "text": "it has no\x07 label gpu"}]
    record = {"why": "no", "checks": checks, "workers": workers, "has_more_workers": True}
    server.on("GET", f"{JOB}/why", 200, record)

    result = schedo("jobs", "why", JOB_ID)

    assert [line.split(maxsplit=2) for line in result.stdout.splitlines()] == [
        ["no"],
        [],
        ["CHECK", "HOLDS", "DETAIL"],
        ["worker", "never", "no worker offers label gpu"],
        ["slot", "not", "now  all slots are taken"],
        ["earlier", "run", "yes      none"],
        [],
        ["WORKER", "TAKES", "IT  DETAIL"],
        ["a", "never", "it has no\\x07 label gpu"],
    ]
    assert result.stderr == "schedo: there are more workers; see schedo workers ls\n"


def test_why_names_the_servers_of_the_workers_in_a_cluster(
    server: FakeServer, schedo: Call
) -> None:
    said = {"ok": False, "permanent": False, "text": "all 1 slots are taken"}
    workers = [{"worker": "a", "server": "db1", **said}, {"worker": "b", "server": "db2", **said}]
    server.on("GET", f"{JOB}/why", 200, {"why": "no", "workers": workers})

    result = schedo("jobs", "why", JOB_ID)

    assert [line.split()[:4] for line in result.stdout.splitlines()] == [
        ["no"],
        [],
        ["WORKER", "SERVER", "TAKES", "IT"],
        ["a", "db1", "not", "now"],
        ["b", "db2", "not", "now"],
    ]


def test_history_lists_the_steps_of_a_job_and_their_distance(
    server: FakeServer, schedo: Call
) -> None:
    items = [
        {"at": "2026-11-20T11:00:00.000000Z", "what": "created"},
        {"at": "2026-11-20T11:00:02.000000Z", "what": "cancel_requested"},
        {
            **{"at": "2026-11-20T11:00:02.500000Z", "what": "ended", "attempt": 2, "worker": "w"},
            "ran": "3035572us",
            **{"outcome": "failed", "error": {"type": "Error", "message": "it\x07 broke"}},
        },
    ]
    server.on("GET", f"{JOB}/history", 200, {"items": items, "truncated": True})

    result = schedo("jobs", "history", JOB_ID)

    headers, created, cancelled, ended = result.stdout.splitlines()
    assert headers.split() == ["AT", "AFTER", "WHAT", "ATTEMPT", "DETAIL"]
    assert created.split()[-1] == "created"
    assert cancelled.split()[-3:] == ["+2s", "cancel", "requested"]
    assert "+500ms" in ended
    assert "failed after it ran 3.04s on w Error: it\\x07 broke" in ended
    assert result.stderr == "schedo: only the newest entries are shown\n"


def test_progress_is_a_table_of_the_reports(server: FakeServer, schedo: Call) -> None:
    reports = [
        {"at": DONE, "attempt": 1, "percent": 12.5, "message": "page 1"},
        {"at": DONE, "attempt": 1, "log": "first\nlast"},
    ]
    server.on("GET", f"{JOB}/progress", 200, {"items": reports})

    headers, first, second = schedo("jobs", "progress", JOB_ID).stdout.splitlines()

    assert headers.split() == ["AT", "PERCENT", "MESSAGE"]
    assert first.endswith("12.5 %   page 1")
    assert second.endswith(" last")


def test_run_makes_jobs_due_now(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/jobs/A:run", 200, job_record(id="A"))
    server.on("POST", "/v1/jobs/B:run", 200, job_record(id="B"))

    assert schedo("jobs", "run", "A", "B").stdout == "A  queued\nB  queued\n"


def test_set_changes_the_time_and_the_priority(server: FakeServer, schedo: Call) -> None:
    later = job_record(state="scheduled", scheduled_at="2999-01-01T00:00:00.000000Z")
    server.on("PATCH", JOB, 200, later)

    result = schedo("jobs", "set", JOB_ID, "--at", "2999-01-01T00:00:00Z", "--priority", "-3")

    assert result.stdout.startswith(f"{JOB_ID}  scheduled for 2999-01-01 00:00 (in ")
    assert server.requests[0].json == {"run_at": "2999-01-01T00:00:00.000000Z", "priority": -3}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give --in, --at or --priority"),
        (["--in", "5s", "--at", "18:30"], "give only one of --in and --at"),
    ],
)
def test_set_without_a_clear_change_is_refused(schedo: Call, args: list[str], message: str) -> None:
    result = schedo("jobs", "set", JOB_ID, *args)

    assert result.exit_code == 2
    assert message in result.stderr


def test_wait_prints_the_result_of_a_task(server: FakeServer, schedo: Call) -> None:
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed", result={"sent": 3}))
    server.on("GET", f"{JOB}/output", 200, {"items": []})

    result = schedo("jobs", "wait", JOB_ID)

    assert (result.exit_code, json.loads(result.stdout)) == (0, {"sent": 3})


def test_wait_reports_why_a_task_failed(server: FakeServer, schedo: Call) -> None:
    failed = job_record(state="failed", error={"type": "KeyError", "message": "'to'"})
    server.on("GET", f"{JOB}/wait", 200, failed)
    server.on("GET", f"{JOB}/output", 200, {"items": []})

    result = schedo("jobs", "wait", JOB_ID)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"schedo: job {JOB_ID} failed: KeyError: 'to'\n"


PARTIAL = {
    "items": [],
    "next_cursor": "more",
    "partial": True,
    "looked_at": 30_000,
    "searched_to": "2026-11-20T09:02:00.000000Z",
}


def test_a_search_looks_through_fifty_thousand_jobs_and_says_so(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", "/v1/jobs", 200, PARTIAL)

    result = schedo("jobs", "ls", "--q", "nowhere")

    assert len(server.requests) == 2
    assert "looked through 60,000 jobs back to 2026-11-20" in result.stderr
    assert "--all" in result.stderr


def test_a_search_goes_on_to_the_oldest_job_if_it_is_told_to(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", "/v1/jobs", 200, PARTIAL)
    server.on("GET", "/v1/jobs", 200, PARTIAL)
    server.on("GET", "/v1/jobs", 200, {"items": []})

    result = schedo("jobs", "ls", "--q", "nowhere", "--all")

    assert len(server.requests) == 3
    assert "looked" not in result.stderr
