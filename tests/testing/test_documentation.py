"""The examples of docs/testing.md work, with the plugin as pytest loads it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.sources import ROOT

FILE = re.compile(r"```\w+\n# (\S+)\n(.*?)```", re.DOTALL)
PLUGIN = "schedo.testing.pytest_plugin"


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest in the folder, with the plugin as the installed package declares it."""
    is_installed = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
    options = [*arguments, *([] if is_installed else ["-p", PLUGIN])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_examples_pass(tmp_path: Path) -> None:
    examples = dict(FILE.findall((ROOT / "docs" / "testing.md").read_text()))
    for name, text in examples.items():
        (tmp_path / name).write_text(text)

    # Without it, the oldest pytest-asyncio warns that a later one has another default.
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    code, output = run_pytest(tmp_path, *scope, "-W", "error", "--strict-markers")

    assert len(examples) == 7
    assert (code, "7 passed" in output) == (0, True), output


def test_without_an_application_the_plugin_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(schedo_tester): pass\n")

    _, missing = run_pytest(tmp_path)
    _, wrong = run_pytest(tmp_path, "-o", "schedo_app=nothing:app")
    _, other = run_pytest(tmp_path, "-o", "schedo_app=os:path")

    assert "set schedo_app = module:attribute in the configuration of pytest" in missing
    assert "schedo_app = nothing:app: No module named 'nothing'" in wrong
    assert "schedo_app = os:path: os:path is a module, not a Schedo application" in other


def test_a_run_of_pytest_that_does_not_use_the_plugin_imports_nothing_of_schedo() -> None:
    check = (
        f"import pytest, sys; before = set(sys.modules); import {PLUGIN};"
        "print(*set(sys.modules) - before)"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )

    assert set(loaded.stdout.split()) == {"schedo", "schedo.version", "schedo.testing", PLUGIN}
