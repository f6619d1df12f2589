"""A place for a database, and a PostgreSQL with a standby."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import PostgresServer, running_server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a database, in a directory that does not exist yet."""
    return tmp_path / "data" / "jobs.db"


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with running_server(primary) as server:
        yield server
