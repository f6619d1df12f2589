"""Names that the server knows: completed by a shell, and suggested by errors."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from schedo.cli.main import cli
from tests.cli.conftest import Call
from tests.client.server import FakeServer, job_record, problem, schedule_record


def complete(words: str, url: str) -> list[str]:
    """Return what bash gets for the last word."""
    environment = {
        "_SCHEDO_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "SCHEDO_URL": url,
    }
    result = CliRunner().invoke(cli, [], prog_name="schedo", env=environment)
    return [line.removeprefix("plain,") for line in result.stdout.split()]


def prepare(server: FakeServer) -> None:
    names = ("nightly-dump", "nightly-report", "cleanup")
    schedules = [schedule_record(name=name) for name in names]
    server.on("GET", "/v1/schedules", 200, {"items": schedules})
    server.on("GET", "/v1/queues", 200, {"items": [{"name": "mail"}]})
    workers = [{"name": "w1", "tasks": ["thumbnail", "report"]}, {"name": "w2", "tasks": None}]
    server.on("GET", "/v1/workers", 200, {"items": workers})
    server.on("GET", "/v1/expectations", 200, {"items": [{"name": "laptop"}]})
    server.on("GET", "/v1/jobs", 200, {"items": [job_record(id="0CR728XJV2WG0")]})


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("schedo schedules show night", ["nightly-dump", "nightly-report"]),
        ("schedo schedules pause x", []),
        ("schedo queues pause ", ["mail"]),
        ("schedo workers drain w", ["w1", "w2"]),
        ("schedo submit thu", ["thumbnail"]),
        ("schedo expectations beat ", ["laptop"]),
        ("schedo jobs why 0CR", ["0CR728XJV2WG0"]),
        ("schedo jobs cancel 0CR", ["0CR728XJV2WG0"]),
    ],
)
def test_a_shell_completes_the_names_that_the_server_knows(
    server: FakeServer, words: str, found: list[str]
) -> None:
    prepare(server)

    assert complete(words, server.url) == found


def test_a_shell_completes_nothing_without_a_server() -> None:
    assert complete("schedo schedules show n", "http://127.0.0.1:1") == []


@pytest.mark.parametrize(
    ("name", "hint"), [("nightly-dmp", "; did you mean nightly-dump?"), ("x", "")]
)
def test_an_unknown_name_is_refused_with_a_similar_one(
    server: FakeServer, schedo: Call, name: str, hint: str
) -> None:
    prepare(server)
    missing = problem(404, "not-found", f"there is no schedule {name!r}")
    server.on("POST", f"/v1/schedules/{name}:trigger", 404, missing)

    result = schedo("schedules", "trigger", name)

    assert (result.exit_code, result.stderr) == (
        1,
        f"schedo: there is no schedule {name!r}{hint}\n",
    )


def test_a_server_that_lists_no_names_still_says_what_is_missing(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", "/v1/schedules", 403, problem(403, "forbidden", "not allowed"))
    server.on("DELETE", "/v1/schedules/x", 404, problem(404, "not-found", "there is no schedule"))

    assert schedo("schedules", "rm", "x").stderr == "schedo: there is no schedule\n"
