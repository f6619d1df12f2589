"""The SDKs as `make sdk` has built them; where that was not possible, tests are skipped loudly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.worker.remote.server import WorkServer, work_server

SDK = ROOT / "sdk"


@pytest.fixture
async def server() -> AsyncIterator[WorkServer]:
    async with work_server() as running:
        yield running


def find_built(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the path of what `make sdk` builds; skip the test loudly if it is not there."""
    if not path.exists():
        with capsys.disabled():
            print(f"\nNOT TESTED: {path.relative_to(ROOT)} is not there; `make sdk` builds it")
        pytest.skip(f"{path.name} is not built")
    return str(path)
