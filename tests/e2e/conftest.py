"""A PostgreSQL server for the end-to-end tests of a file, which may stop and restart it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer, running_server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """Yield the URL of a store that does not exist yet; afterwards it is dropped."""
    yield postgres.url(schema="jobs")
    postgres.sql("DROP SCHEMA IF EXISTS jobs CASCADE")
