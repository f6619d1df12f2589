"""The shutdown of the server: a drain, or a broken store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from schedo.errors import exit_of_server

log = logging.getLogger("schedo")


class Shutdown:
    """Whether the server should stop, and the failure that is the reason, if there is one."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.failure: Exception | None = None

    def request(self) -> None:
        """Start the drain."""
        self._requested.set()

    def fail(self, error: Exception) -> None:
        """Shut down without grace time, because the store cannot commit any more."""
        log.critical("%s; the server stops now with exit code %d", error, exit_of_server(error))
        self.failure = error
        self._requested.set()

    @property
    def is_requested(self) -> bool:
        """Whether a signal or a failure has requested the shutdown."""
        return self._requested.is_set()

    async def interrupts(self, start: Coroutine[Any, Any, None]) -> bool:
        """Run a part of the start to its end, unless the shutdown is requested before that.

        Return whether the part has ended. A database may not answer, and an import may block.
        """
        starting = asyncio.create_task(start)
        requested = asyncio.create_task(self.wait())
        await asyncio.wait((starting, requested), return_when=asyncio.FIRST_COMPLETED)
        requested.cancel()
        starting.cancel()
        try:
            await starting
        except asyncio.CancelledError:
            return False
        return True

    async def wait(self) -> None:
        """Return when a signal or a failure has requested the shutdown."""
        await self._requested.wait()
