"""The locks of a store as they pass from one process to the next one.

They come as descriptors from the process before, or the kernel gives them to a process that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedo.store.sqlite.read_connection import ConcurrentReads

if TYPE_CHECKING:
    from schedo.store.sqlite.lock_wait import HeldLocks


class PassedLocks(ConcurrentReads):
    """The part of a store that holds its locks before it is open, or after it was closed."""

    path: str | None

    def lock_descriptors(self) -> tuple[int, ...]:
        return self._guard.lock_descriptors()

    def inherit(self, lock: int, database: int | None) -> None:
        """Own the descriptors of lock_descriptors() of another process; call it before open()."""
        self._guard.inherit(lock, database)

    async def hold(self) -> HeldLocks | None:
        """Wait until no other process has the store, and lock it for open(); None: in memory.

        A cancelled wait keeps a thread, so the process must end after it.
        """
        if self.path is None:
            return None
        from schedo.store.sqlite.lock_wait import wait_for_locks  # only a standby waits

        held = await wait_for_locks(self.path)
        self._guard.inherit(held.lock, held.database)
        return held

    def hold_again(self) -> bool:
        """Lock a closed store for open() if no other process has it; return whether it is held."""
        assert self.path is not None, "a store in memory is not passed to another process"
        from schedo.store.sqlite.lock_wait import take_free_locks  # seldom

        held = take_free_locks(self.path)
        if held is not None:
            self._guard.inherit(held.lock, held.database)
        return held is not None
