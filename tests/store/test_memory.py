"""The memory store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.store.memory import MemoryStore
from tests.store.contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MemoryStore]:
        store = MemoryStore()
        await store.open()
        yield store
        await store.close()

    async def test_a_memory_store_has_no_size(self, store: MemoryStore) -> None:
        assert await store.size_bytes() == 0
