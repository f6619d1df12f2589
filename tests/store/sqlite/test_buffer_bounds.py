"""How many jobs and bytes the write buffer holds at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedo.core.states import State
from schedo.store.sqlite import write_buffer
from schedo.store.sqlite.buffer_bounds import ALONE, BESIDE_STANDBY, FEW_PERIODS
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import in_table, raw
from tests.store.steps import ended, put

pytestmark = pytest.mark.usefixtures("no_timed_flush")


async def test_the_number_of_buffered_jobs_is_bounded(store: SqliteStore) -> None:
    held = []
    for first in range(1, 20_000, 900):
        await put(store, *(make_job(id=n) for n in range(first, first + 900)))
        held.append(store._buffer._count)

    assert max(held) <= 2 * ALONE.rows
    await raw(store, "SELECT 1")
    assert store._buffer._count <= ALONE.rows
    assert len(await in_table(store)) >= 19_800 - ALONE.rows


async def test_few_jobs_are_buffered_while_another_server_waits_to_take_over(
    store: SqliteStore,
) -> None:
    await put(store, *(make_job(id=n) for n in range(1, 2_001)))
    await put(store, *(make_job(id=n) for n in range(2_001, 5_001)))

    store.bound_replay(True)

    held = []
    for first in range(5_001, 9_000, 300):
        await put(store, *(make_job(id=n) for n in range(first, first + 300)))
        await raw(store, "SELECT 1")
        held.append(store._buffer._count)
    assert held[:2] == [3_300, 600], "it is made shorter by a bounded step, not at once"
    await raw(store, "SELECT 1")
    assert store._buffer._count <= BESIDE_STANDBY.rows
    store.bound_replay(False)
    await put(store, *(make_job(id=n) for n in range(9_501, 12_500)))
    assert store._buffer._count > 2 * BESIDE_STANDBY.rows


async def test_few_rows_wait_for_more_before_they_are_flushed(store: SqliteStore) -> None:
    def end_period() -> None:
        assert store._flush_timer is not None
        store._flush_timer.cancel()
        store._flush_old()

    await put(store, ended(make_job(id=1)))
    for _ in range(FEW_PERIODS - 1):
        end_period()
    assert await in_table(store) == {}
    end_period()
    assert await in_table(store) == {1: "completed"}

    await put(store, *(ended(make_job(id=n)) for n in range(2, 2 + ALONE.few)))
    end_period()  # all entries are younger than it
    end_period()
    assert len(await in_table(store)) == 1 + ALONE.few, "many rows wait for one period"


async def test_beside_another_server_no_row_waits_for_others(store: SqliteStore) -> None:
    store.bound_replay(True)
    await put(store, make_job(id=1))
    assert store._flush_timer is not None

    store._flush_timer.cancel()
    store._flush_old()

    assert await in_table(store) == {1: "queued"}


async def test_beside_another_server_all_jobs_are_flushed_each_period(
    store: SqliteStore,
) -> None:
    store.bound_replay(True)
    await put(store, make_job(id=1))
    await put(store, ended(make_job(id=2)))
    assert await in_table(store) == {}
    assert store._writer is not None

    await store._writer.run(store._buffer.flush_old)

    assert await in_table(store) == {1: "queued", 2: "completed"}
    assert not store._buffer


async def test_few_jobs_that_wait_for_an_instant_are_buffered_beside_another_server(
    store: SqliteStore,
) -> None:
    store.bound_replay(True)
    for first in range(1, 1_000, 100):
        jobs = range(first, first + 100)
        await put(store, *(make_job(id=n, state=State.SCHEDULED) for n in jobs))

    await raw(store, "SELECT 1")
    assert store._buffer._count <= BESIDE_STANDBY.waiting


async def test_a_bound_of_the_buffer_stays_when_the_store_is_opened_again(path: Path) -> None:
    store = SqliteStore(path)
    store.bound_replay(True)
    await store.open()
    await put(store, *(make_job(id=n) for n in range(1, 3_000)))

    await raw(store, "SELECT 1")
    assert store._buffer._count <= BESIDE_STANDBY.rows
    await store.close()


async def test_the_number_of_buffered_jobs_that_wait_for_an_instant_is_bounded(
    store: SqliteStore,
) -> None:
    for first in range(1, 5_000, 100):
        jobs = range(first, first + 100)
        await put(store, *(make_job(id=n, state=State.SCHEDULED) for n in jobs))

    await raw(store, "SELECT 1")
    assert store._buffer._count <= ALONE.waiting


async def test_the_bytes_of_buffered_payloads_are_bounded(store: SqliteStore) -> None:
    for first in range(1, 3_000, 100):
        jobs = range(first, first + 100)
        await put(store, *(make_job(id=n, payload=b"x" * 4_000) for n in jobs))

    await raw(store, "SELECT 1")
    assert store._buffer._size <= write_buffer.BUFFERED_BYTES_MAX
