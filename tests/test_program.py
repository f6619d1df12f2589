"""This program starts itself again: as an interpreter with a module, and as the binary."""

from __future__ import annotations

import subprocess
import sys

import pytest

from schedo.program import (
    executable_of_a_new_version,
    how_to_install,
    is_binary,
    module_command,
)


@pytest.fixture
def binary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look like the binary, as PyInstaller and the launcher make it."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", "/cache/schedo/1/schedo")
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/schedo", "serve"])


def test_a_module_runs_in_a_new_interpreter() -> None:
    ran = subprocess.run(
        [*module_command("schedo"), "--version"], capture_output=True, text=True, check=True
    )

    assert ran.stdout.startswith("schedo, version ")


def test_an_interpreter_may_get_options() -> None:
    command = module_command("this.module", "-I", "/path/of/it.py")

    assert command == [sys.executable, "-I", "/path/of/it.py"]


def test_the_binary_gets_the_name_of_the_module_and_no_options(binary: None) -> None:
    plain, with_options = module_command("a.module"), module_command("a.module", "-I", "/it.py")

    assert plain == with_options == ["/cache/schedo/1/schedo", "-m", "a.module"]


def test_an_upgrade_starts_the_interpreter_again() -> None:
    assert not is_binary()
    assert executable_of_a_new_version() == sys.executable


def test_an_upgrade_starts_the_file_of_the_binary_not_what_it_has_unpacked(binary: None) -> None:
    assert executable_of_a_new_version() == "/usr/bin/schedo"


def test_the_packages_of_an_extra_come_from_a_registry_or_from_a_clone() -> None:
    assert how_to_install("grpc") == (
        "pip install 'schedo[grpc]', or in a clone of schedo: pip install '.[grpc]'"
    )


@pytest.mark.usefixtures("binary")
def test_the_binary_takes_the_packages_of_an_extra_from_a_directory() -> None:
    assert "pip install '.[otel]' --target DIR, with Python 3." in how_to_install("otel")
    assert how_to_install("otel").endswith("set PYTHONPATH=DIR for this binary")
