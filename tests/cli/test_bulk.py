"""Changes of many jobs from the command line: count, confirm, begin, follow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedo.cli import bulk
from tests.cli.conftest import Call
from tests.client.server import JOB_ID, FakeServer, job_record, problem

PATH = "/v1/operations"
NUMBER = "0CR5KPDD15T01"
UNDO = f"schedo: what has not started since can be put back:  schedo operations undo {NUMBER}\n"


def operation(**fields: Any) -> dict[str, Any]:
    return {
        "id": NUMBER,
        "action": "cancel",
        "where": {"queue": "mail"},
        "state": "done",
        "created_at": "2026-11-20T11:00:00.000000Z",
        "total": 1_234,
        "matched": 1_234,
        "done": 1_234,
        "skipped": 0,
        "failed": 0,
        "errors": [],
        "searched_back_to": "2026-11-19T11:00:00.000000Z",
        **fields,
    }


def arrange(server: FakeServer, *states: dict[str, Any], matched: int = 1_234) -> None:
    """Let the server count, begin, and then answer with these states in turn."""
    counted = {"action": "cancel", "where": {"queue": "mail"}, "matched": matched}
    server.on("POST", PATH, 200, counted)
    begun = operation(state="counting", matched=0, done=0)
    del begun["total"]
    server.on("POST", PATH, 201, begun)
    for state in states or (operation(),):
        server.on("GET", f"{PATH}/{NUMBER}", 200, state)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_POLL_S", 0)


def test_jobs_that_match_are_counted_and_changed(server: FakeServer, schedo: Call) -> None:
    arrange(server, operation(state="running", matched=600, done=600), operation())

    result = schedo("jobs", "cancel", "--queue", "mail", "--state", "queued", "--yes")

    assert result.exit_code == 0, result.output
    assert result.stdout == "1,234 jobs cancelled\n"
    where = {"queue": "mail", "state": "queued"}
    assert [each.json for each in server.requests[:2]] == [
        {"action": "cancel", "where": where, "dry_run": True},
        {"action": "cancel", "where": where},
    ]


def test_a_dry_run_only_counts(server: FakeServer, schedo: Call) -> None:
    arrange(server)

    result = schedo("jobs", "delete", "--tag", "a", "--dry-run")

    assert (result.exit_code, result.stdout) == (0, "1,234 jobs match\n")
    assert len(server.requests) == 1
    assert schedo("jobs", "delete", "--tag", "a", "--dry-run", "--json").exit_code == 0


def test_a_count_that_left_out_older_jobs_says_so(server: FakeServer, schedo: Call) -> None:
    since = "2026-11-20T11:04:05.000000Z"
    counted = {"action": "delete", "where": {"tag": "a"}, "matched": 5, "counted_since": since}
    server.on("POST", PATH, 200, counted)

    result = schedo("jobs", "delete", "--tag", "a", "--dry-run")

    told = f"5 jobs match of those created since {since}; older ones were not counted\n"
    assert (result.exit_code, result.stdout) == (0, told)


def test_nothing_begins_if_no_job_matches(server: FakeServer, schedo: Call) -> None:
    arrange(server, matched=0)

    result = schedo("jobs", "retry", "--error", "no route", "--yes")

    assert (result.exit_code, result.stdout) == (0, "no job matches\n")
    assert len(server.requests) == 1


def test_without_a_terminal_the_user_must_be_sure(server: FakeServer, schedo: Call) -> None:
    arrange(server)

    result = schedo("jobs", "cancel", "--queue", "mail")

    assert result.exit_code == 2
    assert "1,234 jobs match; without a terminal to ask, give --yes" in result.stderr
    assert len(server.requests) == 1


@pytest.mark.parametrize(("typed", "begins"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_the_user_is_asked(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch, typed: str, begins: bool
) -> None:
    arrange(server)
    monkeypatch.setattr(bulk, "_can_ask", lambda: True)

    result = schedo("jobs", "cancel", "--queue", "mail", input=typed)

    assert "1,234 jobs match. Cancel 1,234 jobs? Those that run are stopped, which" in result.output
    assert result.exit_code == (0 if begins else 1)
    assert len(server.requests) == (3 if begins else 1)


def test_what_could_not_be_changed_is_shown(server: FakeServer, schedo: Call) -> None:
    errors = [{"job": JOB_ID, "message": f"job {JOB_ID} was invoked\x1b[2J"}]
    arrange(server, operation(action="retry", done=5, skipped=2, failed=1, errors=errors))

    result = schedo("jobs", "retry", "--state", "failed", "--yes")

    assert result.exit_code == 1
    assert result.stderr == (
        "5 jobs queued again, 2 skipped because they had changed, 1 could not be changed:\n"
        f"  job {JOB_ID} was invoked\\x1b[2J\n{UNDO}"
    )


def test_a_refused_operation_is_explained(server: FakeServer, schedo: Call) -> None:
    arrange(server, operation(state="refused", max_jobs=10, matched=0, done=0))

    result = schedo("jobs", "run", "--task", "t", "--max-jobs", "10", "--yes")

    assert result.exit_code == 1
    assert result.stderr == "1,234 jobs match, more than --max-jobs 10; none was changed\n"
    assert server.requests[1].json["max_jobs"] == 10


def test_the_server_is_told_how_many_jobs_are_expected(server: FakeServer, schedo: Call) -> None:
    arrange(server)

    result = schedo("jobs", "cancel", "--queue", "mail", "--expected-count", "1234", "--yes")

    assert result.exit_code == 0
    assert server.requests[1].json["expected_count"] == 1234


@pytest.mark.parametrize("matched", [1_234, 0])
def test_another_number_of_jobs_than_expected_is_refused_by_the_server(
    server: FakeServer, schedo: Call, matched: int
) -> None:
    refused = operation(state="refused", expected_count=40, total=matched, matched=0, done=0)
    arrange(server, refused, matched=matched)

    result = schedo("jobs", "cancel", "--queue", "mail", "--expected-count", "40")

    assert result.exit_code == 1
    assert result.stderr.endswith(", not 40 as expected; none was changed\n")


@pytest.mark.parametrize(
    ("fields", "hint"),
    [({}, UNDO), ({"done": 0}, ""), ({"action": "delete"}, ""), ({"undoes": JOB_ID}, "")],
    ids=["cancelled", "none", "deleted", "undone"],
)
def test_the_command_says_how_to_undo_what_can_be_undone(
    server: FakeServer, schedo: Call, fields: dict[str, Any], hint: str
) -> None:
    server.on("GET", f"{PATH}/{NUMBER}", 200, operation(**fields))

    assert schedo("operations", "show", NUMBER).stderr == hint
    assert schedo("operations", "show", NUMBER, "--json").stderr == ""


def test_an_operation_that_was_cancelled_says_what_is_done(
    server: FakeServer, schedo: Call
) -> None:
    arrange(server, operation(state="cancelled", done=1))

    result = schedo("jobs", "cancel", "--queue", "mail", "--yes")

    assert result.exit_code == 1
    assert result.stderr == f"the operation was cancelled: 1 job cancelled\n{UNDO}"


def test_an_operation_that_failed_says_why_and_what_is_done(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_LINE_EVERY_S", 0)
    error = "ValueError: a bug"
    arrange(
        server,
        operation(state="running", error=error, done=200, matched=200),
        operation(state="failed", error=error, done=200),
    )

    result = schedo("jobs", "cancel", "--queue", "mail", "--yes")

    assert result.exit_code == 1
    assert "200 of 1,234 jobs; trying again: ValueError: a bug\n" in result.stderr
    assert result.stderr.endswith(f"the operation failed: {error}; 200 jobs cancelled\n{UNDO}")


def test_the_command_need_not_wait(server: FakeServer, schedo: Call) -> None:
    arrange(server)

    result = schedo("jobs", "cancel", "--queue", "mail", "--yes", "--no-wait")

    assert result.exit_code == 0
    assert f"schedo operations show {NUMBER} --follow" in result.stdout
    assert len(server.requests) == 2


def test_ctrl_c_leaves_the_operation_running_and_says_so(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange(server, operation(state="running"))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("schedo.cli.bulk.time.sleep", interrupt)

    result = schedo("jobs", "cancel", "--queue", "mail", "--yes")

    assert result.exit_code == 130
    assert f"operation {NUMBER} runs on the server" in result.stderr
    assert f"schedo operations cancel {NUMBER}" in result.stderr


def test_a_change_as_json_is_the_operation(server: FakeServer, schedo: Call) -> None:
    arrange(server)

    result = schedo("jobs", "cancel", "--queue", "mail", "--yes", "--json")

    assert json.loads(result.stdout) == operation()
    assert result.stderr == ""


def test_progress_is_a_line_now_and_then_without_a_terminal(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange(server, operation(state="running", matched=600), operation())
    monkeypatch.setattr(bulk, "_LINE_EVERY_S", 0)

    result = schedo("jobs", "cancel", "--queue", "mail", "--yes")

    assert result.stderr.removesuffix(UNDO).splitlines() == [
        "counting",
        "600 of 1,234 jobs",
        "1,234 of 1,234 jobs",
    ]


def test_progress_is_a_bar_on_a_terminal(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange(server, operation(state="running", matched=617), operation())
    monkeypatch.setattr(bulk, "_can_draw", lambda: True)

    result = schedo("jobs", "cancel", "--queue", "mail", "--yes")

    lines = result.stderr.removesuffix(UNDO).replace("\x1b[K", "").split("\r")[1:]
    assert lines == [
        "[..............................] counting",
        "[###############...............] 617 of 1,234 jobs",
        "[##############################] 1,234 of 1,234 jobs\n",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give ids of jobs, or filters such as --queue"),
        ((JOB_ID, "--queue", "a"), "not both"),
        ((JOB_ID, "--dry-run"), "--dry-run goes with filters, not with ids"),
        ((JOB_ID, "--no-wait"), "--no-wait goes with filters"),
        ((JOB_ID, "--max-jobs", "5"), "--max-jobs goes with filters"),
        ((JOB_ID, "--expected-count", "0"), "--expected-count goes with filters"),
        (("--queue", "a", "--expected-count", "-1"), "--expected-count"),
        (("--state", "done"), "'done' is not one of"),
        (("--queue", "a", "--max-jobs", "0"), "--max-jobs"),
        (("--ended-after", "soon"), "--ended-after"),
    ],
)
@pytest.mark.parametrize("action", ["cancel", "retry", "run", "delete"])
def test_a_wrong_command_line_sends_nothing(
    server: FakeServer, schedo: Call, action: str, arguments: tuple[str, ...], text: str
) -> None:
    result = schedo("jobs", action, *arguments)

    assert result.exit_code == 2
    assert text in result.stderr
    assert server.requests == []


def test_a_filter_that_the_server_refuses_is_named_by_its_option(
    server: FakeServer, schedo: Call
) -> None:
    detail = "cancel changes no failed jobs"
    errors = [{"pointer": "/where/state", "detail": detail}]
    server.on("POST", PATH, 422, problem(422, "invalid", f"/where/state: {detail}", errors=errors))

    result = schedo("jobs", "cancel", "--state", "failed", "--yes")

    assert result.exit_code == 1
    assert result.stderr == f"schedo: --state: {detail}\n"


def test_ended_jobs_are_deleted_by_their_ids(server: FakeServer, schedo: Call) -> None:
    server.on("DELETE", f"/v1/jobs/{JOB_ID}", 204)

    result = schedo("jobs", "delete", JOB_ID)

    assert (result.exit_code, result.stdout) == (0, f"{JOB_ID}  deleted\n")


def test_jobs_are_still_changed_by_their_ids(server: FakeServer, schedo: Call) -> None:
    server.on("POST", f"/v1/jobs/{JOB_ID}:cancel", 200, job_record(state="cancelled"))

    result = schedo("jobs", "cancel", JOB_ID, "--yes")

    assert (result.exit_code, result.stdout) == (0, f"{JOB_ID}  cancelled\n")


def test_operations_are_listed(server: FakeServer, schedo: Call) -> None:
    where = {"queue": "mail", "error": "a\nb"}
    server.on("GET", PATH, 200, {"items": [operation(where=where, requested_by="ann")]})

    header, row = schedo("operations", "ls").stdout.splitlines()

    assert header.split() == ["ID", "STATE", "ACTION", "PROGRESS", "BEGAN", "BY", "WHERE"]
    assert row.startswith(f"{NUMBER}  done   cancel  1,234 of 1,234 jobs  2026-11-20 11:00")
    assert row.endswith(r"ann  queue=mail error=a\nb")
    assert json.loads(schedo("operations", "ls", "--json").stdout)[0]["id"] == NUMBER


def test_an_operation_is_shown_with_its_errors(server: FakeServer, schedo: Call) -> None:
    errors = [{"job": JOB_ID, "message": "it was invoked"}]
    server.on("GET", f"{PATH}/{NUMBER}", 200, operation(failed=1, errors=errors))

    lines = schedo("operations", "show", NUMBER).stdout.splitlines()

    facts = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert (facts["state"], facts["where"], facts["failed"]) == ("done", "queue=mail", "1")
    assert lines[-1] == f"{JOB_ID}  it was invoked"


def test_an_operation_is_followed_until_it_has_ended(server: FakeServer, schedo: Call) -> None:
    arrange(server, operation(state="running"), operation())

    result = schedo("operations", "show", NUMBER, "--follow")

    assert result.exit_code == 0
    assert result.stdout.endswith("1,234 jobs cancelled\n")


def test_an_operation_is_cancelled(server: FakeServer, schedo: Call) -> None:
    server.on("POST", f"{PATH}/{NUMBER}:cancel", 200, operation(state="cancelled"))

    assert "cancelled" in schedo("operations", "cancel", NUMBER).stdout
    printed = json.loads(schedo("operations", "cancel", NUMBER, "--json").stdout)
    assert printed["state"] == "cancelled"


def test_an_unknown_operation_is_an_error(server: FakeServer, schedo: Call) -> None:
    server.on("GET", f"{PATH}/x", 404, problem(404, "not-found", "there is no operation 'x'"))

    result = schedo("operations", "show", "x")

    assert (result.exit_code, result.stderr) == (1, "schedo: there is no operation 'x'\n")


def test_an_operation_is_undone_and_followed(server: FakeServer, schedo: Call) -> None:
    record = operation(state="done", done=3, undoes="0CR728XJV2WG0")
    server.on("POST", "/v1/operations/0CR728XJV2WG0:undo", 201, record)
    server.on("GET", f"/v1/operations/{record['id']}", 200, record)

    result = schedo("operations", "undo", "0CR728XJV2WG0")

    assert result.exit_code == 0
    assert "3 jobs put back" in result.stdout


def test_another_count_than_expected_is_explained(server: FakeServer, schedo: Call) -> None:
    record = operation(state="refused", total=2, done=0, expected_count=3)
    server.on("GET", f"/v1/operations/{record['id']}", 200, record)

    result = schedo("operations", "show", record["id"], "--follow")

    assert result.exit_code == 1
    assert "2 jobs match, not 3 as expected; none was changed" in result.stderr
