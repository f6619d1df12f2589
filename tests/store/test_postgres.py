"""The store in PostgreSQL passes the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.changes import Changes
from schedo.core.states import State
from schedo.store.postgres.store import PostgresStore
from tests.store.contract import StoreContract
from tests.store.contract_bulk import PLAIN


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, postgres_store_url: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(postgres_store_url)
        await store.open()
        yield store
        await store.close()

    async def test_an_operation_is_found_that_another_server_has_changed_the_job_for(
        self, store: PostgresStore
    ) -> None:
        steps = [
            BulkStep(PLAIN.id, number, (JobBefore(job_id, at, State.QUEUED, 0, 5),))
            for number, job_id, at in ((256, 200, 7), (-9, 100, 8))
        ]
        await store.commit(Changes(bulk_operations={PLAIN.id: PLAIN}, steps=steps))

        assert await store.list_bulk_changes(100) == [(PLAIN.id, 8)]
