"""An open store on a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.store.sqlite import store as store_module
from schedo.store.sqlite.store import SqliteStore


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def no_timed_flush(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let no timer flush the write buffer in the middle of the test; return their period."""
    period_s = 3_600.0
    monkeypatch.setattr(store_module, "FLUSH_PERIOD_S", period_s)
    return period_s
