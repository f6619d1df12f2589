"""A store whose commits and loads a test can delay or make fail."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.core.changes import Changes
from schedo.core.loads import Load, LoadJob
from schedo.errors import StoreError
from schedo.store.base import ClockMark, Store


class FaultyStore:
    """Wraps a store; all methods that are not defined here are those of the wrapped store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()  # calls run in their order, as those of the wrapped store
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
        """Delay all commits until release()."""
        self._open.clear()
        self._held.clear()

    async def wait_held(self) -> None:
        """Return once a commit is delayed."""
        await self._held.wait()

    def release(self) -> None:
        """Continue the delayed commits."""
        self._open.set()

    def fail_next(self, *errors: StoreError) -> None:
        """Make the next commits fail, one with each error, before they write anything."""
        self._errors.extend(errors)

    def fail_after(self, *errors: StoreError) -> None:
        """Make the next commits fail, one with each error, after they have written everything."""
        self._errors_after.extend(errors)

    def fail_loads(self, *errors: StoreError) -> None:
        """Make the next loads of a job or a payload fail, one with each error."""
        self._load_errors.extend(errors)

    async def load(self, load: Load) -> Any:
        """Load a record; the load of a job fails if fail_loads() was called."""
        async with self._turn:
            if isinstance(load, LoadJob):
                self._fail_load()
            return await self._store.load(load)

    async def load_payload(self, job_id: int) -> bytes:
        """Load a payload; this fails if fail_loads() was called."""
        async with self._turn:
            self._fail_load()
            return await self._store.load_payload(job_id)

    def _fail_load(self) -> None:
        if self._load_errors:
            self.failures += 1
            raise self._load_errors.pop(0)

    async def commit(self, changes: Changes) -> None:
        """Commit; this waits after hold(), and fails as the test has arranged."""
        async with self._turn:
            await self._admit()
            await self._store.commit(changes)
            self.commits += 1
            self._fail_after()

    async def save_clock(self, mark: ClockMark) -> None:
        """Save the clock's position; this waits and fails like a commit."""
        async with self._turn:
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
