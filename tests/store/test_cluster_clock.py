"""The clock that the servers of a store in PostgreSQL share."""

from __future__ import annotations

import pytest

from schedo.clock import since_boot_ns, wall_us
from schedo.core.limits import MILLISECOND
from schedo.store.base import ClockMark
from schedo.store.postgres.store import PostgresStore
from tests.store.servers import LONG_US, sharing, silence, until


async def test_a_store_reads_the_clock_of_the_database_when_it_opens_and_with_each_heartbeat(
    postgres_store_url: str,
) -> None:
    store, readings = PostgresStore(postgres_store_url), []
    store.cluster.on_reading = lambda *reading: readings.append(reading)
    await store.open()
    at_open = len(readings)
    await until(store, lambda: len(readings) > at_open + 2)
    real_us = wall_us() - since_boot_ns() // 1_000
    await store.close()

    assert at_open >= 3
    for base_us, delay_us in readings:
        assert delay_us >= 0
        assert abs(base_us - real_us) <= delay_us / 2 + MILLISECOND  # the same machine


async def test_the_offset_that_one_server_saves_is_that_of_all(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2) as (first, second):
        await first.save_clock(ClockMark(0, 70, boot=5))
        await second.save_clock(ClockMark(1_000, 2_000, boot=6))
        await first.save_clock(ClockMark(0, 90, boot=5))  # it has not followed the step yet

        marks = [(await each.snapshot()).clock for each in (first, second)]

    assert [(mark.offset_us, mark.base_us) for mark in marks] == [(1_000, 1_090), (1_000, 2_000)]


async def test_what_a_server_has_seen_gets_older_while_no_heartbeat_has_a_response(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(postgres_store_url, 1, LONG_US) as (store,):
        await until(store, store.cluster.is_sure)
        silence(store)
        later = store.cluster._view.sent_s + 7.0

        monkeypatch.setattr("schedo.store.postgres.membership.since_boot_s", lambda: later)

        assert store.cluster.unseen_us() == 7_000_000
