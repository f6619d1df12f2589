"""A store file of its own for every test of the engine."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "schedo.db"
