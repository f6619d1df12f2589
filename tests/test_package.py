"""The public names of the package, and the modules that importing it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import schedo


def test_every_public_name_can_be_imported() -> None:
    for name in schedo.__all__:
        assert getattr(schedo, name).__name__ == name
    assert schedo.__version__ == "0.1.0"
    assert set(schedo.__all__) < set(dir(schedo))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = schedo.nothing


@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("import schedo", "schedo.errors schedo.core msgspec asyncio"),
        (
            "from schedo import Schedo; Schedo()",
            "schedo.engine aiosqlite schedo.web schedo.client.async_transport",
        ),
        (
            "import schedo.worker.process.child",
            "schedo.engine.engine schedo.web aiosqlite starlette",
        ),
    ],
    ids=["schedo", "an application", "a child process"],
)
def test_an_import_loads_no_module_that_it_does_not_need(code: str, without: str) -> None:
    check = f"import sys; {code}; print(*set({without.split()!r}) & set(sys.modules))"

    loaded = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.split() == []
