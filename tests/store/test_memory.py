"""The store in memory passes the contract, and so does the model of the simulation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.store.base import Snapshot, Store
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.contract import StoreContract
from tests.store.model import ModelStore
from tests.store.steps import put


class TestMemoryStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(":memory:")
        await store.open()
        yield store
        await store.close()

    async def reopen(self, store: Store) -> Snapshot:
        return await store.snapshot()

    async def test_a_store_in_memory_has_no_size_and_no_path(self, store: SqliteStore) -> None:
        assert await store.size_bytes() == 0
        assert store.path is None

    async def test_a_closed_store_in_memory_is_empty_when_it_opens_again(
        self, store: SqliteStore
    ) -> None:
        await put(store, make_job(id=1))
        await store.close()

        snapshot = await store.open()

        assert snapshot.last_id == 0
        assert not snapshot.was_killed


class TestModelStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[ModelStore]:
        store = ModelStore()
        await store.open()
        yield store
        await store.close()
