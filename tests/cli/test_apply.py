"""`schedo apply`: the files it reads, the requests it sends, and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer, problem

PATH = "/v1/declarations"
TOML = """\
owner = "file:jobs"

[schedules.nightly]
cron = "0 3 * * *"
task = "report"
start_at = 2030-01-01T00:00:00Z
payload = { deep = true }

[queues.mail]
concurrency = 4

[expectations.laptop]
every = "1d"
within = "2h"
"""


def write(tmp_path: Path, text: str, name: str = "jobs.toml") -> str:
    file = tmp_path / name
    file.write_text(text)
    return str(file)


def entry(name: str, effect: str, *changes: Any, warnings: Any = ()) -> dict[str, Any]:
    return {"name": name, "effect": effect, "changes": changes, "warnings": warnings}


def on_declare(server: FakeServer, *schedules: Any, **fields: Any) -> None:
    nothing: dict[str, Any] = {"queues": [], "expectations": []}
    nothing |= {"undeclared": [], "undeclared_expectations": []}
    answer = {"owner": "file:jobs", **nothing, "schedules": schedules, **fields}
    server.on("POST", PATH, 200, answer)


CHANGED = entry("nightly", "changed", {"field": "tz", "before": None, "after": "UTC"})


def test_a_file_is_checked_first_and_then_declared(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    on_declare(
        server,
        CHANGED,
        entry("b", "unchanged"),
        queues=[entry("mail", "unchanged")],
        expectations=[entry("laptop", "created", warnings=["no application has a task"])],
    )

    result = schedo("apply", write(tmp_path, TOML))

    check, put = server.requests
    assert check.json == {
        "owner": "file:jobs",
        "schedules": [
            {
                "name": "nightly",
                "cron": "0 3 * * *",
                "task": "report",
                "start_at": "2030-01-01T00:00:00+00:00",
                "payload": {"deep": True},
            }
        ],
        "queues": [{"name": "mail", "concurrency": 4}],
        "expectations": [{"name": "laptop", "every": "1d", "within": "2h"}],
        "prune": False,
        "dry_run": True,
    }
    assert put.json == {**check.json, "dry_run": False}
    assert result.stdout.splitlines() == [
        "schedule nightly changed",
        '  + tz = "UTC"',
        "expectation laptop created",
        f"{tmp_path}/jobs.toml: 1 changed, 2 up to date, 1 created",
    ]
    assert result.stderr == "schedo: warning: expectation laptop: no application has a task\n"
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("name", "text"), [("jobs.toml", TOML), ("jobs.json", '{"owner": "file:jobs", "queues": {}}')]
)
def test_a_file_may_begin_with_the_mark_that_editors_of_windows_write(
    server: FakeServer, schedo: Call, tmp_path: Path, name: str, text: str
) -> None:
    on_declare(server)

    result = schedo("apply", write(tmp_path, "\ufeff" + text, name))

    assert result.exit_code == 0, result.stderr


def test_diff_changes_nothing_and_says_by_its_exit_code_whether_anything_differs(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    path = write(tmp_path, TOML)
    on_declare(server, CHANGED)
    on_declare(server, entry("nightly", "unchanged"))

    differs = schedo("apply", path, "--diff", "--prune")
    same = schedo("apply", path, "--diff")

    assert (differs.exit_code, same.exit_code) == (3, 0)
    assert differs.stdout.splitlines()[0] == "schedule nightly would be changed"
    assert [(each.json["dry_run"], each.json["prune"]) for each in server.requests] == [
        (True, True),
        (True, False),
    ]


def test_what_is_no_longer_in_the_file_is_named_with_the_remedy(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    on_declare(
        server,
        entry("nightly", "kept", warnings=["it stays"]),
        undeclared=["old"],
        undeclared_expectations=["pc"],
    )

    result = schedo("apply", write(tmp_path, TOML))

    assert result.stderr.splitlines() == [
        "schedo: warning: schedule nightly: it stays",
        f"schedo: no longer in {tmp_path}/jobs.toml, but still on the server: old, pc;"
        " --prune deletes them",
    ]


def test_the_results_of_all_files_are_printed_as_json(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    on_declare(server, CHANGED)
    other = write(tmp_path, '{"schedules": {"b": {"task": "t", "every": "1h"}}}', "b.json")

    result = schedo("apply", write(tmp_path, TOML), other, "--json")

    assert [each["owner"] for each in json.loads(result.stdout)] == ["file:jobs"] * 2
    assert [each.json["dry_run"] for each in server.requests] == [True, True, False, False]
    assert server.requests[1].json["owner"] == f"file:{tmp_path}/b.json"


def test_an_error_of_the_server_names_the_file_the_entry_and_the_field(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    errors = [
        {"pointer": "/schedules/0/cron", "detail": "bad"},
        {"pointer": "/queues/0/weight", "detail": "worse"},
        {"pointer": "/owner", "detail": "worst"},
    ]
    server.on("POST", PATH, 422, problem(422, "invalid", "nothing", errors=errors))

    result = schedo("apply", write(tmp_path, TOML))

    assert result.exit_code == 1
    assert result.stderr == (
        f"schedo: {tmp_path}/jobs.toml: nothing was changed: schedules.nightly.cron: bad;"
        " queues.mail.weight: worse; owner: worst\n"
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[schedules.a", "at the end of a table declaration"),
        (
            "[schedule.a]",
            "schedule: the keys are owner, schedules, queues, expectations; did you mean",
        ),
        ("schedules = 1", "schedules: it must be a table with an entry by name"),
        ("[queues]\nmail = 4", "queues.mail: it must be a table of fields"),
        ('owner = "code:x"', 'owner: it must be a text "file:NAME"'),
        ("[schedules.a]\nat = 2030-01-01", "schedules.a.at: give a time with its offset"),
        ("[schedules.a]\npayload = [nan]", "schedules.a.payload.0: nan is no JSON number"),
        ('[schedules.a]\nname = "b"', "schedules.a.name: the name is the key of the entry"),
    ],
)
def test_a_bad_file_sends_no_request(
    server: FakeServer, schedo: Call, tmp_path: Path, text: str, error: str
) -> None:
    result = schedo("apply", write(tmp_path, text))

    assert result.exit_code == 1
    assert result.stderr.startswith(f"schedo: {tmp_path}/jobs.toml: ")
    assert error in result.stderr
    assert "nothing was changed" in result.stderr
    assert server.requests == []


def test_json_with_a_key_that_occurs_twice_is_refused(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    result = schedo("apply", write(tmp_path, '{"queues": {}, "queues": {}}', "a.json"))

    assert "the key 'queues' occurs twice" in result.stderr
    assert server.requests == []


def test_two_files_cannot_declare_one_schedule(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    text = '[schedules.a]\nevery = "1h"\ntask = "t"\n'

    result = schedo("apply", write(tmp_path, text, "a.toml"), write(tmp_path, text, "b.toml"))

    assert f"{tmp_path}/b.toml: schedules a is in {tmp_path}/a.toml too" in result.stderr
    assert (result.exit_code, server.requests) == (1, [])


def test_a_file_that_cannot_be_read_is_named(schedo: Call, tmp_path: Path) -> None:
    assert "cannot read nope.toml: No such file" in schedo("apply", "nope.toml").stderr
    assert f"cannot read {tmp_path}: Is a directory" in schedo("apply", str(tmp_path)).stderr


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.toml", "x = " + "[" * 3_000, "the file is nested deeper than 64 levels"),
        ("a.json", '{"x": ' + "[" * 3_000, "the file is nested deeper than 64 levels"),
        (
            "a.toml",
            f"schedules.a.payload.{'.'.join('x' * 3_000)} = 1",
            "schedules.a.payload: the entry is nested deeper than 64 levels",
        ),
    ],
    ids=["brackets", "json", "dots"],
)
def test_a_file_that_is_nested_too_deep_is_refused(
    server: FakeServer, schedo: Call, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    result = schedo("apply", write(tmp_path, text, name))

    assert (result.exit_code, server.requests) == (1, [])
    assert f"{tmp_path}/{name}: " in result.stderr
    assert reason in result.stderr
    assert "nothing was changed" in result.stderr


def test_stdin_needs_an_owner(server: FakeServer, schedo: Call) -> None:
    on_declare(server)

    refused = schedo("apply", "-", input='[schedules.a]\ntask = "t"\n')
    accepted = schedo("apply", "-", input=' {"owner": "file:x"}')

    assert 'stdin needs a line owner = "file:NAME"' in refused.stderr
    assert accepted.stdout == "-: nothing is declared\n"
