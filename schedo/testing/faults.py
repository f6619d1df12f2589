"""A store whose commits can be held back or made to fail."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.core.changes import Changes
from schedo.errors import StoreError
from schedo.store.base import Store


class FaultyStore:
    """Stands before a real store; everything but `commit` goes straight through."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open = asyncio.Event()
        self._open.set()
        self._errors: list[StoreError] = []
        self.commits = 0
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def hold(self) -> None:
        """Let commits wait until released."""
        self._open.clear()

    def release(self) -> None:
        """Let held commits go on."""
        self._open.set()

    def fail_next(self, *errors: StoreError) -> None:
        """Let the next commits fail, one with each error, before anything is written."""
        self._errors.extend(errors)

    async def commit(self, changes: Changes) -> None:
        """Commit, when and if the test lets it."""
        await self._open.wait()
        if self._errors:
            self.failures += 1
            raise self._errors.pop(0)
        await self._store.commit(changes)
        self.commits += 1
