"""The store in PostgreSQL passes the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.store.postgres.store import PostgresStore
from tests.store.contract import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, postgres_store_url: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(postgres_store_url)
        await store.open()
        yield store
        await store.close()
