"""The bounds of the log of changes, and the plans of its queries."""

from __future__ import annotations

import pytest

from schedo.core.action_log import LogEntry, LogFilter
from schedo.core.changes import Changes
from schedo.store.base import Retention
from schedo.store.retention import LOG_KEPT_US
from schedo.store.sqlite import action_log
from schedo.store.sqlite.store import SqliteStore

NOW = 1_700_000_000_000_000


def entries(count: int, *, is_job: bool, at: int = NOW) -> list[LogEntry]:
    target = "jobs/A" if is_job else "queues/a"
    return [LogEntry(at, "ada", "cli", "", "x", target, "done", None, is_job)] * count


async def count(store: SqliteStore) -> dict[str, int]:
    found = await store.list_log(LogFilter(), None, 1_000)
    targets = [each.entry.target for each in found]
    return {target: targets.count(target) for target in sorted(set(targets))}


async def test_each_kind_of_change_keeps_its_latest_entries(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action_log, "LOG_ENTRIES_KEPT", 5)
    await store.commit(Changes(log=entries(3, is_job=False)))
    await store.commit(Changes(log=entries(50, is_job=True)))
    first = await store.prune(NOW, Retention(), 10)
    while await store.prune(NOW, Retention(), 10):
        pass

    assert first == 10
    assert await count(store) == {"jobs/A": 5, "queues/a": 3}


async def test_old_entries_are_deleted(store: SqliteStore) -> None:
    await store.commit(Changes(log=entries(2, is_job=False)))
    await store.commit(Changes(log=entries(1, is_job=False, at=NOW + 1)))
    await store.prune(NOW + LOG_KEPT_US + 1, Retention(), 10)

    assert await count(store) == {"queues/a": 1}
