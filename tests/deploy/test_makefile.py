"""`make run` and `make test` use the code of the checkout, whatever is installed in its .venv."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sources import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")

INSTALL = "--no-build-isolation -e ."


def make_environment(directory: Path) -> Path:
    """Make what `make test` leaves in an environment, as far as the Makefile looks at it."""
    packages = directory / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    for stamp in (".run", ".dev", ".sdk"):
        (directory / stamp).touch()
    return packages


def commands_of(target: str, environment: Path) -> str:
    """Return the commands that make would run."""
    command = ["make", "-C", str(ROOT), "--dry-run", target, f"VENV={environment}"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, env=plain, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("target", ["run", "types"])
def test_what_is_set_up_is_not_set_up_again(tmp_path: Path, target: str) -> None:
    make_environment(tmp_path)

    assert INSTALL not in commands_of(target, tmp_path)


@pytest.mark.parametrize("target", ["run", "types"])
def test_a_copy_that_pip_has_installed_makes_way_for_the_checkout(
    tmp_path: Path, target: str
) -> None:
    copy = make_environment(tmp_path) / "schedo"
    copy.mkdir()
    (copy / "__init__.py").touch()

    assert INSTALL in commands_of(target, tmp_path)
