"""`schedo cron explain`, without a server."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from schedo.cli.main import cli


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
    assert "2027-01-01 00:01:30.000+00:00" in result.stdout


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
