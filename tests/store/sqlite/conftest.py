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
def no_timed_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no timer flush the write buffer in the middle of the test."""
    monkeypatch.setattr(store_module, "FLUSH_PERIOD_S", 3_600.0)
