"""A store whose commits and look-ups can be held back or made to fail."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.core.changes import Changes
from schedo.core.loads import Load, LoadJob
from schedo.errors import StoreError
from schedo.store.base import ClockMark, Store


class FaultyStore:
    """Stands before a real store; what is not named here goes straight through."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open = asyncio.Event()
        self._open.set()
        self._held = asyncio.Event()
        self._errors: list[StoreError] = []
        self._errors_after: list[StoreError] = []
        self._load_errors: list[StoreError] = []
        self.commits = 0
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def hold(self) -> None:
        """Let commits wait until released."""
        self._open.clear()
        self._held.clear()

    async def wait_held(self) -> None:
        """Return once a commit is held back."""
        await self._held.wait()

    def release(self) -> None:
        """Let held commits go on."""
        self._open.set()

    def fail_next(self, *errors: StoreError) -> None:
        """Let the next commits fail, one with each error, before anything is written."""
        self._errors.extend(errors)

    def fail_after(self, *errors: StoreError) -> None:
        """Let the next commits fail, one with each error, although they were written."""
        self._errors_after.extend(errors)

    def fail_loads(self, *errors: StoreError) -> None:
        """Let the next look-ups of one job or payload fail, one with each error."""
        self._load_errors.extend(errors)

    async def load(self, load: Load) -> Any:
        """Do the load, if the test lets it."""
        if isinstance(load, LoadJob):
            self._fail_load()
        return await self._store.load(load)

    async def load_payload(self, job_id: int) -> bytes:
        """Read the payload, if the test lets it."""
        self._fail_load()
        return await self._store.load_payload(job_id)

    def _fail_load(self) -> None:
        if self._load_errors:
            self.failures += 1
            raise self._load_errors.pop(0)

    async def commit(self, changes: Changes) -> None:
        """Commit, when and if the test lets it."""
        await self._admit()
        await self._store.commit(changes)
        self.commits += 1
        self._fail_after()

    async def save_clock(self, mark: ClockMark) -> None:
        """Write how the clock stands, when and if the test lets it."""
        await self._admit()
        await self._store.save_clock(mark)
        self._fail_after()

    async def _admit(self) -> None:
        if not self._open.is_set():
            self._held.set()
        await self._open.wait()
        if self._errors:
            self.failures += 1
            raise self._errors.pop(0)

    def _fail_after(self) -> None:
        if self._errors_after:
            self.failures += 1
            raise self._errors_after.pop(0)
