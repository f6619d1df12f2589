"""A place for a database, and pytest's explanations for claims that others import."""

from __future__ import annotations

from pathlib import Path

import pytest

for name in ("contract_jobs", "contract_lists", "contract_reads", "contract_schedules", "steps"):
    pytest.register_assert_rewrite(f"tests.store.{name}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a database, in a directory that does not exist yet."""
    return tmp_path / "data" / "jobs.db"
