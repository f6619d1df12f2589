"""The log warns of a transaction that keeps a snapshot for long: once, and again after another."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from schedo.core.limits import MINUTE
from schedo.engine.database_watch import DatabaseWatch
from schedo.errors import StoreError
from schedo.store.base import Reader
from schedo.store.database_health import DatabaseHealth, Holder


class Database:
    """A store whose database has this transaction."""

    def __init__(self) -> None:
        self.holder: Holder | None = None
        self.is_away = False

    async def database_health(self) -> DatabaseHealth:
        if self.is_away:
            raise StoreError("it is away")
        return DatabaseHealth((), self.holder, None)


async def test_each_old_snapshot_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    watch, database = DatabaseWatch(), Database()
    report = Holder("session", "report", 7, 0, 100)
    seen = []
    with caplog.at_level(logging.WARNING, "schedo.engine"):
        for holder in (
            report._replace(age_us=4 * MINUTE),
            report._replace(age_us=5 * MINUTE),
            report._replace(age_us=6 * MINUTE),
            Holder("prepared transaction", "two", None, 9 * MINUTE, 3),
            Holder("replication slot", "old", None, None, 10_000),
            None,
            report._replace(age_us=5 * MINUTE),
        ):
            database.holder = holder
            await watch.look(cast(Reader, database))
            seen.append(len(caplog.messages))

    assert seen == [0, 1, 1, 2, 2, 2, 3]
    assert caplog.messages[0].startswith("the session 'report' (pid 7) has kept a snapshot of the")
    assert "for 300 s" in caplog.messages[0]
    assert caplog.messages[1].startswith("the prepared transaction 'two' has kept")


async def test_the_last_health_stays_while_the_database_is_away() -> None:
    watch, database = DatabaseWatch(), Database()
    await watch.look(cast(Reader, database))
    database.is_away = True

    await watch.look(cast(Reader, database))

    assert watch.last == DatabaseHealth((), None, None)
