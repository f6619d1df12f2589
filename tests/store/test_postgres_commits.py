"""What the commits of several servers do to each other in PostgreSQL: nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from schedo.core.states import State
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.postgres import PostgresServer, running_server
from tests.store.servers import sharing
from tests.store.steps import put

COMMITS = 50


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        server.set(log_statement="'all'", log_lock_waits="on", deadlock_timeout="'1ms'")
        yield server


async def work(store: PostgresStore, first: int) -> None:
    """Commit new jobs, and the ends of those before."""
    no = store.cluster.me.no
    for number in range(first, first + COMMITS):
        job = make_job(id=number * 64 + no, unique_key=f"{no} {number}")
        await put(store, job)
        await put(store, make_job(id=job.id, state=State.COMPLETED, is_new=False))


async def test_commits_notify_nobody_and_wait_for_no_lock(server: PostgresServer) -> None:
    log = server.directory / "log"
    async with sharing(server.url(schema="jobs"), 2) as stores:
        before = log.stat().st_size
        await asyncio.gather(*(work(store, 1) for store in stores))
        text = log.read_bytes()[before:].decode()

    assert text.count("INSERT INTO job (") == 2 * 2 * COMMITS  # one statement a commit
    assert not re.search("notify", text, re.IGNORECASE)
    # The session that watches another server waits for its advisory lock, as it should.
    waits = [each for each in text.splitlines() if "still waiting for" in each]
    assert [each for each in waits if "advisory lock" not in each] == []
