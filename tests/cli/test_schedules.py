"""`schedo schedules`: the requests it sends, and the text it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer, Reply, job_record, problem, schedule_record

PATH = "/v1/schedules/nightly"


def test_schedules_are_printed_as_a_table(server: FakeServer, schedo: Call) -> None:
    interval = schedule_record(name="poll", every="90s", paused=True)
    del interval["cron"]
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record(), interval]})

    result = schedo("schedules", "ls")

    headers, nightly, poll = result.stdout.splitlines()
    assert headers.split() == [
        *("NAME", "RESULT", "FAILS", "RULE", "TZ", "STATE", "NEXT", "LAST", "OWNER", "WORK")
    ]
    assert nightly.split()[:6] == ["nightly", "-", "-", "0", "3", "*"]
    assert "UTC  active  2099-11-21 03:00 (" in nightly
    assert poll.split()[:7] == ["poll", "-", "-", "every", "90s", "UTC", "paused"]
    assert result.stderr == ""


@pytest.mark.parametrize(("tz", "is_noted"), [("Asia/Tokyo", True), ("UTC", False)])
def test_a_table_with_a_rule_in_another_zone_says_in_which_zone_its_times_are(
    server: FakeServer, schedo: Call, tz: str, is_noted: bool
) -> None:
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record(tz=tz)]})

    result = schedo("schedules", "ls")

    note = "schedo: RULE is in the time zone TZ, NEXT and LAST are in that of this machine\n"
    assert result.stderr == (note if is_noted else "")


def test_a_schedule_without_a_cron_expression_needs_no_note_about_zones(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    interval = schedule_record(every="90s")
    del interval["cron"]
    server.on("GET", "/v1/schedules", 200, {"items": [interval]})

    assert schedo("schedules", "ls").stderr == ""


@pytest.mark.parametrize(
    ("fields", "work"),
    [
        ({"task": "report", "payload": {}}, "report"),
        ({"task": "report", "payload": {"month": 3}}, 'report {"month":3}'),
        ({"task": "report", "payload": None}, "report"),
        ({"task": "shell", "payload": {"command": "backup"}}, "backup"),
    ],
)
def test_the_work_of_a_schedule_names_its_task(
    server: FakeServer, schedo: Call, fields: dict[str, Any], work: str
) -> None:
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record(owner="code:x", **fields)]})

    row = schedo("schedules", "ls").stdout.splitlines()[1]

    assert row.endswith(f"code:x  {work}")


RUNS = {
    "completed": 11,
    "failed": 3,
    "cancelled": 0,
    "expired": 0,
    "failed_in_row": 3,
    "last": [
        {
            "job": "0000000000007",
            "state": "failed",
            "ended_at": "2020-01-03T03:00:09.000000Z",
            "duration": "9s",
        }
    ],
    "last_completed_at": "2019-12-31T03:00:00.000000Z",
    "last_failure": {
        "job": "0000000000007",
        "at": "2020-01-03T03:00:09.000000Z",
        "type": "exit-code",
        "message": "it ended with 2",
    },
}


def test_a_failing_schedule_is_seen_at_once(server: FakeServer, schedo: Call) -> None:
    once = {**RUNS, "failed_in_row": 1}
    records = [
        *(schedule_record(name=f"job{n}", runs=once) for n in range(6)),
        schedule_record(runs=RUNS),
        schedule_record(name="fine", runs={**RUNS, "failed_in_row": 0, "last": []}),
    ]
    server.on("GET", "/v1/schedules", 200, {"items": records})

    result = schedo("schedules", "ls")

    assert result.stdout.splitlines()[7].split()[:3] == ["nightly", "failed", "3"]
    assert result.stderr == (
        "schedo: 7 schedules fail: nightly (the last 3 runs failed), job0 (the last run failed),"
        " job1 (the last run failed), job2 (the last run failed), job3 (the last run failed)"
        " and 2 more; why: schedo schedules show NAME\n"
    )


def test_failing_schedules_are_listed_alone(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record(runs=RUNS)]})

    result = schedo("schedules", "ls", "--failing")

    assert result.stdout.splitlines()[1].startswith("nightly  failed  3")
    assert result.stderr == ""
    assert "failing=true" in server.requests[0].target


def test_a_failing_schedule_is_shown_with_its_last_failure_and_its_last_runs(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", PATH, 200, schedule_record(runs=RUNS))
    server.on("GET", f"{PATH}/decisions", 200, {"items": []})

    result = schedo("schedules", "show", "nightly")

    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    shown = dict(lines)
    assert shown["runs"] == "11 completed, 3 failed"
    assert shown["failed_in_row"] == "3"
    assert shown["last_failure"] == "exit-code: it ended with 2"
    assert shown["last_completed_at"].startswith("2019-12-31 03:00:00")
    assert "job 0000000000007" in result.stdout
    assert result.stdout.splitlines()[-1].split()[-3:] == ["failed", "9s", "0000000000007"]


def test_one_schedule_is_shown_with_its_decisions(server: FakeServer, schedo: Call) -> None:
    decision = {
        "scheduled_for": "2020-01-01T03:00:00.000000Z",
        "decided_at": "2020-01-01T03:00:00.000000Z",
        "decision": "skipped_overlap",
        "count": 1,
    }
    fires = ["2099-11-21T03:00:00.000000Z"] * 2
    server.on("GET", PATH, 200, schedule_record(next_fires=fires, median_run="62452us"))
    server.on("GET", f"{PATH}/decisions", 200, {"items": [decision]})

    result = schedo("schedules", "show", "nightly")

    assert result.stdout.count("2099-11-21 03:00:00.000+00:00") == 2
    assert "skipped_overlap" in result.stdout.splitlines()[-1]
    assert "warnings" not in result.stdout
    assert ["median_run", "62ms"] in [line.split() for line in result.stdout.splitlines()]


def test_put_makes_a_schedule_that_runs_a_command(server: FakeServer, schedo: Call) -> None:
    server.on("PUT", PATH, 200, schedule_record(effect="unchanged"))

    result = schedo(
        *("schedules", "put", "nightly", "--cron", "0 3 * * *", "--tz", "Europe/Paris"),
        *("--retry", "3", "--overlap", "allow", "--", "backup", "--full"),
    )

    assert result.stdout.startswith("schedule nightly up to date; next fire 2099-11-21 03:00")
    assert server.requests[0].json == {
        "cron": "0 3 * * *",
        "tz": "Europe/Paris",
        "retry": 3,
        "overlap": "allow",
        "task": "shell",
        "payload": {"command": ["backup", "--full"]},
    }


@pytest.mark.parametrize("rule", [("--at", "2099-01-01 10:00"), ("--every", "1h")], ids=str)
def test_a_time_zone_without_a_cron_rule_is_refused(
    server: FakeServer, schedo: Call, rule: tuple[str, str]
) -> None:
    result = schedo("schedules", "put", "once", *rule, "--tz", "Europe/Paris", "--", "backup")

    assert result.exit_code == 2
    assert "--tz requires --cron" in result.stderr
    assert server.requests == []


def test_put_makes_a_schedule_that_runs_a_task(server: FakeServer, schedo: Call) -> None:
    server.on("PUT", PATH, 201, schedule_record(next_fires=[], effect="created"))

    result = schedo(
        *("schedules", "put", "nightly", "--every", "90s", "--task", "report"),
        *("--payload", '{"day": 1}', "--retry", "sidekiq", "--paused"),
    )

    assert result.stdout == "schedule nightly created; it will not fire\n"
    assert server.requests[0].json == {
        "every": "90s",
        "task": "report",
        "payload": {"day": 1},
        "retry": "sidekiq",
        "paused": True,
    }


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "written by an editor of Windows"])
def test_an_option_replaces_a_field_of_the_schedule_in_a_file(
    server: FakeServer, schedo: Call, tmp_path: Path, mark: str
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(mark + '{"cron": "@daily", "task": "report", "payload": null, "priority": 1}')
    server.on("PUT", PATH, 201, schedule_record(effect="created"))

    schedo("schedules", "put", "nightly", "--file", str(path), "--priority", "5")

    assert server.requests[0].json == {
        "cron": "@daily",
        "task": "report",
        "payload": None,
        "priority": 5,
    }


def test_put_reads_a_schedule_from_stdin(server: FakeServer, schedo: Call) -> None:
    server.on("PUT", PATH, 201, schedule_record(effect="created"))

    schedo("schedules", "put", "nightly", "--file", "-", input='{"every": 5, "task": "t"}')

    assert server.requests[0].json == {"every": 5, "task": "t"}


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--cron", "@daily"], "give a command after --, or --task"),
        (["--task", "t"], "give exactly one of --cron, --every and --at"),
        (["--task", "t", "--cron", "@daily", "--every", "5s"], "give exactly one of --cron"),
        (["--task", "t", "--cron", "@daily", "--payload", "{"], "is not JSON"),
        (["--task", "t", "--cron", "@daily", "--payload", "@f"], "is not JSON"),
        (["--task", "t", "--cron", "@daily", "--", "ls"], "give either a command"),
        (["--cron", "@daily", "ls", "--", "ls"], "not both"),
        (["--file", "/nowhere"], "cannot read /nowhere"),
        (["--task", "t", "--at", "noon"], "'noon' is not a time; write"),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_2_and_sends_no_request(
    server: FakeServer, schedo: Call, args: list[str], reason: str
) -> None:
    result = schedo("schedules", "put", "nightly", *args)

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert server.requests == []


def test_a_file_without_a_json_object_is_refused(schedo: Call) -> None:
    result = schedo("schedules", "put", "nightly", "--file", "-", input="[1]")

    assert result.exit_code == 2
    assert "one JSON object" in result.stderr


def test_a_schedule_is_paused_resumed_and_deleted(server: FakeServer, schedo: Call) -> None:
    server.on("POST", f"{PATH}:pause", 200, schedule_record(paused=True))
    server.on("POST", f"{PATH}:resume", 200, schedule_record())
    server.reply("DELETE", PATH, Reply(204))

    paused = schedo("schedules", "pause", "nightly", "--note", "moving")
    resumed = schedo("schedules", "resume", "nightly", "--from", "2026-11-20T00:00:00Z")
    deleted = schedo("schedules", "rm", "nightly")

    assert paused.stdout == "schedule nightly paused; it does not fire until it is resumed\n"
    assert resumed.stdout.startswith("schedule nightly resumed; next fire 2099-11-21 03:00")
    assert deleted.stdout == "schedule nightly deleted\n"
    assert server.requests[0].json == {"note": "moving"}
    assert server.requests[1].json == {"resume_from": "2026-11-20T00:00:00.000000Z"}


def test_a_trigger_prints_the_job_that_it_made(server: FakeServer, schedo: Call) -> None:
    server.on("POST", f"{PATH}:trigger", 201, {"job": job_record(id="A")})

    result = schedo("schedules", "trigger", "nightly")

    assert (result.exit_code, result.stdout) == (0, "A  queued\n")


def test_a_trigger_that_was_skipped_is_exit_code_1(server: FakeServer, schedo: Call) -> None:
    skipped = {"skipped_overlap": True, "blocking_job": "B"}
    server.on("POST", f"{PATH}:trigger", 200, skipped)

    plain = schedo("schedules", "trigger", "nightly")
    as_json = schedo("schedules", "trigger", "nightly", "--json")

    assert (plain.exit_code, plain.stdout) == (1, "")
    assert plain.stderr == "schedo: skipped, because job B is not finished\n"
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (1, skipped)


def test_an_unknown_schedule_is_exit_code_1(server: FakeServer, schedo: Call) -> None:
    missing = problem(404, "not-found", "there is no schedule nightly")
    server.on("DELETE", PATH, 404, missing)

    result = schedo("schedules", "rm", "nightly")

    assert (result.exit_code, result.stderr) == (1, "schedo: there is no schedule nightly\n")


def test_put_reads_what_show_prints(server: FakeServer, schedo: Call, tmp_path: Path) -> None:
    server.on("GET", PATH, 200, schedule_record(note="why", last_job="01K0000000001"))
    server.on("GET", f"{PATH}/decisions", 200, {"items": []})
    server.on("PUT", "/v1/schedules/copy", 201, schedule_record(name="copy", effect="created"))
    file = tmp_path / "nightly.json"
    file.write_text(schedo("schedules", "show", "nightly", "--json").stdout)

    result = schedo("schedules", "put", "copy", "--file", str(file))

    assert result.stdout.startswith("schedule copy created")
    assert server.requests[-1].json == {
        "cron": "0 3 * * *",
        "tz": "UTC",
        "task": "shell",
        "payload": {"command": "true"},
        "paused": False,
    }


def test_put_reports_a_change(server: FakeServer, schedo: Call) -> None:
    server.on("PUT", PATH, 200, schedule_record(effect="changed"))

    result = schedo("schedules", "put", "nightly", "--cron", "0 4 * * *", "--", "true")

    assert result.stdout.startswith("schedule nightly changed; next fire")


def test_not_paused_resumes_a_schedule_that_was_paused_by_hand(
    server: FakeServer, schedo: Call
) -> None:
    server.on("PUT", PATH, 200, schedule_record(paused=True, effect="unchanged"))
    server.on("POST", f"{PATH}:resume", 200, schedule_record())

    result = schedo("schedules", "put", "nightly", "--every", "1h", "--task", "t", "--not-paused")

    assert result.stdout.startswith("schedule nightly up to date and resumed; next fire")


def test_reset_puts_what_the_owner_declared(server: FakeServer, schedo: Call) -> None:
    server.on("POST", f"{PATH}:reset", 200, schedule_record(effect="changed", owner="code:x:app"))
    server.on("POST", "/v1/schedules/b:reset", 200, schedule_record(name="b", effect="unchanged"))

    assert schedo("schedules", "reset", "nightly").stdout.startswith("schedule nightly reset; ")
    assert schedo("schedules", "reset", "b").stdout.startswith("schedule b up to date; ")


def test_the_list_marks_a_schedule_that_was_changed_by_hand(
    server: FakeServer, schedo: Call
) -> None:
    record = schedule_record(owner="code:shop:app", edited=["cron"])
    server.on("GET", "/v1/schedules", 200, {"items": [record]})

    line = schedo("schedules", "ls").stdout.splitlines()[1]

    assert "active, edited" in line
    assert "code:shop:app" in line
