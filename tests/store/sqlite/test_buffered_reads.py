"""Reads on the other connections find what the write buffer has, or has just had."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from schedo.core.changes import Changes
from schedo.core.job_filter import JobFilter
from schedo.core.model import Queue
from schedo.store.sqlite import write_buffer
from schedo.store.sqlite.connection import undone
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.passes import WITHIN_S, one_pass, until
from tests.store.steps import listed, put

pytestmark = pytest.mark.usefixtures("no_timed_flush")


async def test_jobs_are_found_while_a_commit_takes_them_from_the_buffer_to_the_tables(
    store: SqliteStore,
) -> None:
    assert await listed(store) == []
    await put(store, make_job(id=1))
    is_committing, may_go_on = threading.Event(), threading.Event()

    def hold(statement: str) -> None:
        if statement == "COMMIT":
            is_committing.set()
            may_go_on.wait(WITHIN_S)

    assert store._writer is not None
    await store._writer.run(lambda connection: connection.set_trace_callback(hold))
    committing = asyncio.create_task(store.commit(Changes(queues={"q": Queue("q")})))
    await until(is_committing.is_set)
    looking_up = asyncio.create_task(store.get_job(1))
    listing = asyncio.create_task(listed(store))
    await one_pass()
    # Behind those that read without a flush, on each of their connections.
    await store.list_attempts(1)
    await store.find_job_ids(JobFilter(), None, 1)
    may_go_on.set()
    await committing

    assert await looking_up is not None
    assert await listing == [1]


@contextmanager
def refused_for_want_of_room(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction on a disk that has no room for it."""
    with undone(connection):
        yield
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


async def test_the_search_of_an_operation_finds_all_jobs_on_a_full_disk(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, make_job(id=1), make_job(id=2))
    monkeypatch.setattr(write_buffer, "transaction", refused_for_want_of_room)

    await store.settle()

    assert await store.find_job_ids(JobFilter(), None, 9) == ([2, 1], None)

    monkeypatch.undo()
    await store.settle()

    assert await store.find_job_ids(JobFilter(), None, 9) == ([2, 1], None)
