"""The options of the scripts in bench/server."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import pytest

from bench.report import SCRIPTS
from bench.server.script import Option, Results, positive_numbers, run_script, whole_numbers

OPTIONS = [
    (name, option)
    for name in SCRIPTS
    for option in importlib.import_module(f"bench.server.{name}").OPTIONS
]
ZERO_MAKES_SENSE = {("lateness", "armed"), ("memory", "jobs")}


def refused(
    words: list[str],
    option: Option,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """Return the error message of a script for words that its option does not accept."""

    def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
        pytest.fail(f"it measures {arguments}")

    monkeypatch.setattr(sys, "argv", ["script", *words])
    with pytest.raises(SystemExit) as left:
        run_script("a script", measure, [option])
    assert left.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda each: getattr(each, "name", each))
def test_a_number_that_cannot_be_measured_is_refused(
    name: str, option: Option, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    least = 0 if (name, option.name) in ZERO_MAKES_SENSE else 1

    said = refused([f"--{option.name}", str(least - 1)], option, monkeypatch, capsys)

    assert said == f"script: error: argument --{option.name}: {least - 1} is less than {least}"


@pytest.mark.parametrize("text", ["many", "1.5", "1,x", ""])
def test_a_text_that_is_not_a_number_is_refused_with_a_reason(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    option = Option("sizes", "1", "1", "how large", positive_numbers)

    said = refused(["--sizes", text], option, monkeypatch, capsys)

    assert said.startswith("script: error: argument --sizes: ")
    assert said.endswith((" is not a whole number", "give at least one number"))


def test_a_missing_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    option = Option("count", 1, 1, "jobs")

    said = refused(["--directory", f"{tmp_path}/missing"], option, monkeypatch, capsys)

    assert said.endswith("/missing' is not a directory to write in")


def test_numbers_on_the_command_line_are_read_in_order_without_repeats() -> None:
    assert whole_numbers("100, 0 100,1_000") == [100, 0, 1000]
