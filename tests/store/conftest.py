"""A place for a database."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a database, in a directory that does not exist yet."""
    return tmp_path / "data" / "jobs.db"
