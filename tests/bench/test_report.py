"""`python -m bench.report`: the results that it stores and those that it only prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.headlines import HEADLINES

FIGURE = {"what": "jobs", "unit": "/s", "floor_what": "", "median": 7, "min": 6, "max": 8}
# A headline of the script "start", so README.md quotes it.
QUOTED = FIGURE | {"what": "submit to handler start: p50", "unit": "us"}
PAGE = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"


def fake_measure(name: str, runs: int, is_quick: bool) -> dict[str, Any]:
    return {
        **{"command": f"python {name}", "runs": runs, "date": "2026-11-20", "machine": "a machine"},
        **{"checks": ["all done"], "notes": ["4 slots"], "figures": [FIGURE, QUOTED]},
    }


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Prepare a page and stored results; replace the measurement by fixed figures."""
    page, results = tmp_path / "README.md", tmp_path / "results.json"
    page.write_text(PAGE)
    (tmp_path / "quoting.md").write_text(PAGE)
    results.write_text("{}")
    monkeypatch.setattr(report, "README", tmp_path / "quoting.md")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "RESULTS", results)
    monkeypatch.setattr(report, "measure", fake_measure)
    return page, results


def test_figures_of_short_runs_are_printed_and_not_stored(
    published: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, results = published
    monkeypatch.setattr(sys, "argv", ["report", "--quick", "--only", "start"])

    report.main()

    assert "| jobs | **7/s** [6/s - 8/s] | - | - |" in capsys.readouterr().out.splitlines()
    assert (page.read_text(), results.read_text()) == (PAGE, "{}")


def test_figures_of_full_runs_replace_the_old_ones(
    published: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, results = published
    monkeypatch.setattr(sys, "argv", ["report", "--only", "start"])

    report.main()

    text = page.read_text()
    assert "### start" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert '"start"' in results.read_text()


def test_the_readme_quotes_the_measured_headlines(
    published: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["report", "--only", "start"])

    report.main()

    quoted = published[0].with_name("quoting.md").read_text().splitlines()
    assert quoted[3:-2] == [
        "| | schedo | floor | ratio | the best durable peer | script, date |",
        "|---|---|---|---|---|---|",
        "| HTTP submit to handler start, idle server, p50 | **7 us** [6 us - 8 us] | - | - | -"
        " | `start`, 2026-11-20 |",
    ]


def test_a_script_that_fails_keeps_its_results_and_the_others_are_stored(
    published: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, runs: int, is_quick: bool) -> dict[str, Any] | None:
        return None if name == "shell" else fake_measure(name, runs, is_quick)

    published[1].write_text('{"shell": {"figures": []}}')
    monkeypatch.setattr(report, "render", lambda results: ["rendered"])
    monkeypatch.setattr(report, "measure", fail)
    monkeypatch.setattr(sys, "argv", ["report", "--only", "shell", "start"])

    with pytest.raises(SystemExit) as left:
        report.main()

    assert left.value.code == "shell failed, and keeps its last results"
    stored = json.loads(published[1].read_text())
    assert stored["shell"] == {"figures": []}
    assert len(stored["start"]["figures"]) == 2


def test_a_quoted_figure_that_a_script_did_not_measure_is_an_error(
    published: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["report", "--only", "shell"])

    with pytest.raises(SystemExit) as left:
        report.main()

    assert left.value.code == (
        "shell did not measure 'commands, 16 at a time', which the page quotes"
    )


def test_both_pages_show_the_stored_results() -> None:
    results = json.loads(report.RESULTS.read_text())

    assert "\n".join(report.render(results)) in report.PAGE.read_text()
    assert "\n".join(report.render_readme(results)) in report.README.read_text()


def test_every_headline_names_a_script_of_the_report() -> None:
    assert {line.script for line in HEADLINES} <= set(report.SCRIPTS)


def test_a_number_of_runs_below_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["report", "--runs", "0"])

    with pytest.raises(SystemExit) as left:
        report.main()

    assert left.value.code == 2
