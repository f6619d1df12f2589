"""The progress reports of running handlers and commands, merged and sent at intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from schedo.core.model import LeaseKey
from schedo.core.value_limits import LOG_CHARACTERS_MAX

# A handler may report in a tight loop; the server gets at most ten updates a second.
INTERVAL_S = 0.1


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """One progress update: percent (0 to 100), a message, lines for the log, the output so far."""

    percent: float | None = None
    message: str | None = None
    log: str | None = None
    output: str | None = None

    def then(self, later: Said) -> Said:
        """Merge a later update into this one: it replaces values, and log lines are appended."""
        log = later.log
        if log is not None and self.log is not None:
            log = f"{self.log}\n{log}"[-LOG_CHARACTERS_MAX:]
        return Said(
            self.percent if later.percent is None else later.percent,
            later.message or self.message,
            log or self.log,
            later.output or self.output,
        )


ReportProgress = Callable[[LeaseKey, Said], None]


def ignore_progress(key: LeaseKey, update: Said) -> None:
    """Drop the update; for code that runs outside of a worker."""


class Progress:
    """The merged updates of each attempt since the last interval; `send` gets them."""

    def __init__(self, send: ReportProgress) -> None:
        self._send = send
        self._updates: dict[LeaseKey, Said] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def tell(self, key: LeaseKey, update: Said) -> None:
        """Add an update; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._add, key, update)

    def forget(self, key: LeaseKey) -> None:
        """Drop the pending update of an attempt that has ended."""
        if self._updates:
            self._updates.pop(key, None)

    def close(self) -> None:
        """Drop all pending updates and stop the timer."""
        self._updates.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _add(self, key: LeaseKey, update: Said) -> None:
        known = self._updates.get(key)
        self._updates[key] = update if known is None else known.then(update)
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        updates, self._updates = self._updates, {}
        for key, update in updates.items():
            self._send(key, update)
