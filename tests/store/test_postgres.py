"""The store in PostgreSQL passes the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.changes import Changes
from schedo.core.states import State
from schedo.store.base import ClockMark
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.store.contract import StoreContract
from tests.store.contract_bulk import PLAIN
from tests.store.steps import put
from tests.store.test_postgres_inbox import connected


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, postgres_store_url: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(postgres_store_url)
        await store.open()
        yield store
        await store.close()

    async def test_the_rank_of_a_job_with_run_at_is_stored_as_the_version_before_has_it(
        self, store: PostgresStore, postgres_store_url: str
    ) -> None:
        await store.save_clock(ClockMark(offset_us=7))
        timed = make_job(id=1, state=State.SCHEDULED, due_at=1_000, due_elapsed=False)
        timed.rank, timed.offset_us = 993, 7
        await put(store, timed)

        async with connected(postgres_store_url) as client:
            assert await client.fetchval("SELECT rank FROM job WHERE due_at = 1000") == 993

    async def test_an_operation_is_found_that_another_server_has_changed_the_job_for(
        self, store: PostgresStore
    ) -> None:
        steps = [
            BulkStep(PLAIN.id, number, (JobBefore(job_id, at, State.QUEUED, 0, 5),))
            for number, job_id, at in ((256, 200, 7), (-9, 100, 8))
        ]
        await store.commit(Changes(bulk_operations={PLAIN.id: PLAIN}, steps=steps))

        assert await store.list_bulk_changes(100) == [(PLAIN, 8)]
