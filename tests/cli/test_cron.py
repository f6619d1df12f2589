"""`schedo cron explain`, without a server."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from schedo.cli.main import cli
from tests.client.server import FakeServer


def explain(*args: str) -> Result:
    return CliRunner().invoke(cli, ["cron", "explain", *args], prog_name="schedo")


def test_an_expression_is_explained_with_its_next_fires() -> None:
    result = explain("30 2 * * mon-fri", "--after", "2027-01-01T00:00:00Z", "-n", "2")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[:4] == [
        "meaning    At 02:30 on Monday through Friday",
        "time zone  UTC",
        "",
        "NEXT FIRE",
    ]
    times = [line[:29] for line in result.stdout.splitlines()[4:]]
    assert times == ["2027-01-01 02:30:00.000+00:00", "2027-01-04 02:30:00.000+00:00"]


def test_fires_at_changes_of_the_clock_are_marked() -> None:
    result = explain(
        *("30 2 * * *", "--tz", "Europe/Berlin", "--after", "2027-03-27T12:00:00Z", "--json")
    )

    record = json.loads(result.stdout)
    assert record["next_fires"][0] == "2027-03-28T01:00:00.000000Z"
    assert record["clock_changes"] == [
        {
            "at": "2027-03-28T01:00:00.000000Z",
            "description": "clocks go forward: moved, there is no 02:00 to 03:00 that day",
        }
    ]


def test_a_table_has_the_clock_changes() -> None:
    result = explain("30 2 * * *", "--tz", "Europe/Berlin", "--after", "2027-03-27T12:00:00Z")

    assert result.stdout.splitlines()[3].endswith("  CLOCK CHANGE")
    assert "clocks go forward: moved" in result.stdout.splitlines()[4]


def test_warnings_go_to_stderr() -> None:
    assert "it fires on days that match either" in explain("0 9 1 * mon").stderr


def test_an_interval_is_explained() -> None:
    result = explain("@every 90s", "--after", "2027-01-01T00:00:00Z", "-n", "1")

    assert result.stdout.startswith("meaning    Every 90s\n")
    assert "2027-01-01 00:00:00.000+00:00" in result.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["61 * * * *"], "for EXPR: minute '61': 61 is not between 0 and 59"),
        (["0 0 * * *", "--tz", "Mars/Olympus"], "for --tz: "),
    ],
)
def test_a_wrong_expression_names_the_argument(args: list[str], message: str) -> None:
    result = explain(*args)

    assert result.exit_code == 2
    assert message in result.stderr


def test_the_fires_end_with_the_range() -> None:
    result = explain(
        *("0 * * * *", "--after", "2027-01-01T00:00:00Z", "--before", "2027-01-01T02:30:00Z"),
        "--json",
    )

    assert [at[11:16] for at in json.loads(result.stdout)["next_fires"]] == [
        "00:00",
        "01:00",
        "02:00",
    ]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    result = explain(
        "0 * * * *", "--after", "2027-01-01T00:00:00Z", "--before", "2026-12-31T00:00:00Z"
    )

    assert result.exit_code == 2
    assert "--before" in result.stderr


def test_the_other_schedules_of_a_server_are_named(server: FakeServer) -> None:
    found = {
        "tz": "UTC",
        "description": "At 02:30",
        "next_fires": ["2027-01-01T02:30:00.000000Z", "2027-01-02T02:30:00.000000Z"],
        "clock_changes": [],
        "warnings": [],
        "normalized": "30 2 * * *",
        "together": [
            {"at": "2027-01-01T02:30:00.000000Z", "schedules": 24, "names": ["a", "b", "c", "d"]},
            {"at": "2027-01-02T02:30:00.000000Z", "schedules": 0, "names": []},
        ],
    }
    server.on("POST", "/v1/cron:explain", 200, found)

    result = explain("30 2 * * *", "--others", "--url", server.url)

    header, first, second = result.stdout.splitlines()[3:]
    assert header.endswith("OTHER SCHEDULES")
    assert first.endswith("24: a, b, c and 21 more")
    assert "24" not in second
    assert server.requests[0].json == {
        "cron": "30 2 * * *",
        "name": "example",
        "count": 5,
        "coincidences": True,
    }


@pytest.mark.parametrize(
    "words",
    [
        ("cron", "explain", "30", "2", "*", "*", "*"),
        ("schedules", "put", "x", "--cron", "30", "2", "*", "*", "*", "--", "echo"),
        ("expectations", "put", "x", "--cron", "30", "2", "*", "*", "*", "--within", "1h"),
    ],
    ids=" ".join,
)
def test_an_expression_without_quotes_is_recognized(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, words)

    assert result.exit_code == 2
    assert "'30' is only one field; put the expression in quotes, as in" in result.stderr
