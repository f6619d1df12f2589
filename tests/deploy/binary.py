"""The binary of `make binary`. It is not built for the tests, because that takes a minute.

Where it is missing, or older than the sources, its tests are skipped loudly.
"""

from __future__ import annotations

import pytest

from tests.sources import ROOT

BINARY = ROOT / "dist" / "schedo"


def skip_unless_built(capsys: pytest.CaptureFixture[str]) -> None:
    """Skip the test loudly if the binary is not there, or older than the sources."""
    fault = why_not_tested()
    if fault is not None:
        with capsys.disabled():
            print(f"\nNOT TESTED: the binary, because {fault}")
        pytest.skip(fault)


def why_not_tested() -> str | None:
    """Return why the binary cannot be tested, if it cannot."""
    if not BINARY.exists():
        return "there is no dist/schedo; build it: make binary"
    built = BINARY.stat().st_mtime
    sources = [
        path
        for top in ("schedo", "deploy/binary")
        for path in (ROOT / top).rglob("*")
        if path.suffix in {".py", ".go", ".spec", ".sql"}
    ]
    newer = [path for path in sources if path.stat().st_mtime > built]
    return f"dist/schedo is older than {newer[0].name}; build it: make binary" if newer else None
