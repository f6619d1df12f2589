"""`schedo crontab import`: the schedules it creates, and its report of all other lines."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from schedo.cli.crontab import CrontabEntry, parse_crontab
from schedo.cli.crontab_import import build_spec
from tests.cli.conftest import Call
from tests.client.server import FakeServer, problem, schedule_record

USER_FILE = """\
SHELL=/bin/bash
MAILTO=root
0 3 * * * save --full
* * * * 61 broken
30 4 * * 1 report
"""


def write(folder: Path, text: str, name: str = "mycron") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def names(text: str) -> list[str]:
    return [entry.name for entry in parse_crontab(text, system=False, source="mycron").entries]


def list_as_stored(server: FakeServer, *schedules: dict[str, object]) -> None:
    server.on("GET", "/v1/schedules", 200, {"items": list(schedules)})


def accept_all(server: FakeServer, text: str, status: int = 201) -> None:
    list_as_stored(server)
    for name in names(text):
        path = f"/v1/schedules/{name}"
        effect = "created" if status == 201 else "unchanged"
        server.on("PUT", path, status, schedule_record(name=name, effect=effect))


def test_each_entry_becomes_a_schedule_and_each_other_line_is_reported(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    accept_all(server, USER_FILE)

    result = schedo("crontab", "import", write(tmp_path, USER_FILE), "--tz", "Europe/Paris")

    lines = result.stdout.splitlines()
    save, report = names(USER_FILE)
    assert result.exit_code == 1
    assert lines[0].startswith("line 2: note: MAILTO")
    assert lines[1].startswith(f"line 3: {save} created; next fire 2099-11-21 04:00:00.000+01:00")
    assert lines[2].startswith("line 4: refused: ")
    assert lines[3].startswith(f"line 5: {report} created")
    assert lines[4] == "2 imported, 1 refused; times are in Europe/Paris"
    assert server.requests[0].json == {
        "cron": "0 3 * * *",
        "tz": "Europe/Paris",
        "task": "shell",
        "payload": {"command": "save --full", "shell": "/bin/bash", "env": {}},
        "retry": "none",
        "meta": {"crontab": str(tmp_path / "mycron")},
        "overlap": "allow",
        "catchup": "latest",
    }


def test_importing_again_changes_nothing(server: FakeServer, schedo: Call, tmp_path: Path) -> None:
    text = "0 3 * * * backup\n"
    accept_all(server, text, status=200)
    path = write(tmp_path, text)

    first, second = schedo("crontab", "import", path), schedo("crontab", "import", path)

    assert first.exit_code == second.exit_code == 0
    assert "up to date" in second.stdout
    puts = [request for request in server.requests if request.method == "PUT"]
    assert puts[0].target == puts[1].target
    assert puts[0].body == puts[1].body
    owner = quote_plus(f"crontab:{socket.gethostname()}{path}")
    assert puts[0].target.endswith(f"?owner={owner}")


def test_a_dry_run_has_the_warnings_of_an_import(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    path = write(tmp_path, "0 9 1 * mon backup\n")

    result = schedo("crontab", "import", str(path), "--dry-run")

    assert "schedo: warning: line 1: mycron.backup-" in result.stderr
    assert "both day fields are restricted" in result.stderr


def test_a_warning_of_the_server_is_printed(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = "0 3 * * * backup\n"
    [name] = names(text)
    server.on("GET", "/v1/schedules", 200, {"items": []})
    taken = "it now belongs to crontab:x/y; before, file:z declared it"
    server.on("PUT", f"/v1/schedules/{name}", 200, schedule_record(name=name, warnings=[taken]))

    result = schedo("crontab", "import", write(tmp_path, text))

    assert result.exit_code == 0
    assert result.stderr == f"schedo: warning: line 1: {name}: {taken}\n"


def stored(name: str, path: str | None) -> dict[str, object]:
    owner = "api" if path is None else f"crontab:{socket.gethostname()}{path}"
    return schedule_record(name=name, owner=owner)


def test_schedules_of_removed_lines_are_listed(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = "0 3 * * * backup\n61 * * * * report\n"
    path = write(tmp_path, text)
    twice = names("0 3 * * * backup\n0 4 * * * backup\n0 5 * * * report\n")
    list_as_stored(
        server,
        *(stored(name, path) for name in (*twice, "mycron.gone-1")),
        stored("mycron.another-1", "/elsewhere/mycron"),
        stored("mycron.by-hand", None),
    )
    server.on("PUT", f"/v1/schedules/{twice[0]}", 200, schedule_record(name=twice[0]))

    shown = schedo("crontab", "import", path)
    as_json = schedo("crontab", "import", path, "--json")

    assert shown.exit_code == as_json.exit_code == 1
    assert [line for line in shown.stdout.splitlines() if "no longer" in line] == [
        f"no longer in the file: {twice[1]} (schedo schedules rm {twice[1]})",
        "no longer in the file: mycron.gone-1 (schedo schedules rm mycron.gone-1)",
    ]
    assert json.loads(as_json.stdout)["stale"] == [
        {"name": twice[1], "deleted": False},
        {"name": "mycron.gone-1", "deleted": False},
    ]
    assert {request.method for request in server.requests} == {"PUT", "GET"}


def test_prune_deletes_the_schedules_of_removed_lines(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = "0 3 * * * backup\n"
    path = write(tmp_path, text)
    list_as_stored(server, stored("mycron.gone-1", path), stored("mycron.gone-2", path))
    server.on("PUT", f"/v1/schedules/{names(text)[0]}", 200, schedule_record())
    server.on("DELETE", "/v1/schedules/mycron.gone-1", 204)
    server.on("DELETE", "/v1/schedules/mycron.gone-2", 404, problem(404, "not-found", "no such"))

    result = schedo("crontab", "import", path, "--prune")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:3] == [
        "no longer in the file: mycron.gone-1 deleted",
        "no longer in the file: mycron.gone-2 deleted",
    ]


def test_a_dry_run_of_prune_names_what_it_would_delete_and_changes_nothing(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    path = write(tmp_path, "0 3 * * * backup\n")
    list_as_stored(server, stored("mycron.gone-1", path))

    result = schedo("crontab", "import", path, "--prune", "--dry-run")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == [
        "no longer in the file: mycron.gone-1 would be deleted",
        "1 would be imported, 0 refused; times are in UTC",
    ]
    assert {request.method for request in server.requests} == {"GET"}


def test_each_fire_is_shown_in_the_zone_of_its_entry(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    path = write(tmp_path, "CRON_TZ=Asia/Tokyo\n0 3 * * * a\nCRON_TZ=\n0 3 * * * b\n")

    dry = ("--name", "web1", "--dry-run")
    both = schedo("crontab", "import", path, "--dry-run").stdout.splitlines()
    one = schedo("crontab", "import", "-", *dry, input="CRON_TZ=Asia/Tokyo\n0 3 * * * a\n")

    assert " 03:00:00.000+09:00 (" in both[0]
    assert " 03:00:00.000+00:00 (" in both[1]
    assert both[2] == "2 would be imported, 0 refused; times are in Asia/Tokyo, UTC"
    assert one.stdout.splitlines()[1] == "1 would be imported, 0 refused; times are in Asia/Tokyo"


def test_a_dry_run_never_says_that_it_has_imported_something(
    server: FakeServer, schedo: Call
) -> None:
    dry = ("crontab", "import", "-", "--name", "web1", "--dry-run")

    nothing = schedo(*dry, input="# nothing\n")
    refused = schedo(*dry, input="61 * * * * backup\n")

    assert nothing.stdout == "0 would be imported, 0 refused\n"
    assert refused.stdout.splitlines()[-1] == "0 would be imported, 1 refused"


def test_an_anacrontab_is_refused(server: FakeServer, schedo: Call, tmp_path: Path) -> None:
    path = write(tmp_path, "@monthly 15 cron.monthly run-parts /etc/cron.monthly\n", "anacrontab")

    result = schedo("crontab", "import", path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "is an anacrontab (period, delay, identifier, command)" in result.stderr
    assert server.requests == []


def test_a_dry_run_sends_no_request(server: FakeServer, schedo: Call, tmp_path: Path) -> None:
    path = write(tmp_path, "0 3 * * * backup\n")

    result = schedo("crontab", "import", path, "--dry-run", "--name", "old", "--json")

    (made,) = json.loads(result.stdout)["schedules"]
    assert result.exit_code == 0
    assert server.requests == []
    assert made["name"].startswith("old.backup-")
    assert made["next_fire"].endswith("T03:00:00.000000Z")
    assert made["effect"] is None


def test_json_lists_schedules_refused_lines_and_notices(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    accept_all(server, USER_FILE)
    path = write(tmp_path, USER_FILE)

    result = schedo("crontab", "import", path, "--json", "--tz", "UTC")

    answer = json.loads(result.stdout)
    assert [item["line"] for item in answer["schedules"]] == [3, 5]
    assert [item["line"] for item in answer["refused"]] == [4]
    assert [item["line"] for item in answer["notices"]] == [2]
    assert answer["schedules"][0]["command"] == "save --full"
    assert {item["file"] for part in answer.values() for item in part} == {path}


def test_a_schedule_that_the_server_refuses_is_reported_by_line(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = "0 3 * * * backup\n"
    disabled = problem(403, "shell-disabled", "this server runs no commands")
    server.on("PUT", f"/v1/schedules/{names(text)[0]}", 403, disabled)
    list_as_stored(server)

    result = schedo("crontab", "import", write(tmp_path, text))

    assert result.exit_code == 1
    assert result.stdout.startswith("line 1: refused: this server runs no commands\n")


def test_a_system_crontab_is_recognized_and_its_users_are_noticed(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = "17 * * * * root cd / && run-parts /etc/cron.hourly\n25 6 * * * nobody true\n"

    result = schedo("crontab", "import", write(tmp_path, text), "--dry-run", "--json")

    answer = json.loads(result.stdout)
    assert [item["user"] for item in answer["schedules"]] == ["root", "nobody"]
    assert answer["schedules"][0]["command"] == "cd / && run-parts /etc/cron.hourly"
    assert "nobody" in answer["notices"][-1]["reason"]


def test_the_format_option_overrides_the_detection(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    path = write(tmp_path, "17 * * * * root true\n")

    result = schedo("crontab", "import", path, "--dry-run", "--json", "--user-format")

    (made,) = json.loads(result.stdout)["schedules"]
    assert (made["user"], made["command"]) == (None, "root true")


def make_entry(**fields: object) -> CrontabEntry:
    values: dict[str, object] = {
        "line_number": 1,
        "cron": "0 3 * * *",
        "tz": None,
        "command": "backup",
        "user": None,
        "environment": {},
        "stdin": None,
        "name": "mycron.backup",
    }
    return CrontabEntry(**{**values, **fields})  # type: ignore[arg-type]


def test_an_entry_keeps_its_shell_variables_input_zone_and_home() -> None:
    environment = {"SHELL": "/bin/bash", "PATH": "/opt/bin", "HOME": "/srv"}

    spec = build_spec(make_entry(environment=environment, stdin="a\n", tz="Asia/Tokyo"), "UTC")

    assert spec["tz"] == "Asia/Tokyo"
    assert spec["payload"] == {
        "command": "backup",
        "shell": "/bin/bash",
        "env": {"PATH": "/opt/bin", "HOME": "/srv"},
        "stdin": "a\n",
        "cwd": "/srv",
    }


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["/nowhere"], "cannot read /nowhere"),
        (
            ["-", "--name", "x", "--tz", "Mars/Base"],
            "for --tz: the time zone 'Mars/Base' is not known",
        ),
        (["-"], "a crontab from stdin has no name: give one with --name"),
        (["-", "--name", "a b"], "for --name: it has 1 to 64 letters, digits"),
        (["-", "--name", "x" * 65], "for --name: it has 1 to 64 letters, digits"),
        ([], "Missing argument"),
    ],
    ids=str,
)
def test_wrong_usage_is_exit_code_2(schedo: Call, args: list[str], reason: str) -> None:
    result = schedo("crontab", "import", *args)

    assert result.exit_code == 2
    assert reason in result.stderr


def test_only_the_line_with_invalid_bytes_is_refused(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    path = tmp_path / "mycron"
    path.write_bytes(b"0 3 * * * true\n0 4 * * * echo \xff\x1b[2J\n")
    server.on(
        "PUT", f"/v1/schedules/{names('0 3 * * * true')[0]}", 201, schedule_record(effect="created")
    )
    list_as_stored(server)

    result = schedo("crontab", "import", str(path), "--user-format")

    assert result.exit_code == 1
    assert "line 1: " in result.stdout
    assert "line 2: refused: character 16 is a byte that is not UTF-8" in result.stdout
    assert "\x1b" not in result.stdout
