"""Throttles the progress reports of running handlers and commands: merges them for an interval."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate

# A handler may report in a tight loop; the server gets at most ten updates a second.
INTERVAL_S = 0.1

ReportProgress = Callable[[LeaseKey, ProgressUpdate], None]


def ignore_progress(key: LeaseKey, update: ProgressUpdate) -> None:
    """Drop the update; for code that runs outside of a worker."""


class ProgressThrottle:
    """The merged updates of each attempt since the last interval; `send` gets them."""

    def __init__(self, send: ReportProgress) -> None:
        self._send = send
        self.updates: dict[LeaseKey, ProgressUpdate] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_due = False  # the updates will be sent

    def report(self, key: LeaseKey, update: ProgressUpdate) -> None:
        """Add an update; may be called from any thread.

        It is merged here and not in the loop, which may be busy while a handler reports a million.
        In a process that a handler has forked, it does nothing.
        """
        if os.getpid() != self._process:  # where nothing may ever release the lock
            return
        with self._lock:
            known = self.updates.get(key)
            self.updates[key] = update if known is None else known.then(update)
            is_first, self._is_due = not self._is_due, True
        if is_first:
            self._loop.call_soon_threadsafe(self._flush_later)

    def forget(self, key: LeaseKey) -> None:
        """Drop the pending update of an attempt that has ended."""
        if self.updates:
            with self._lock:
                self.updates.pop(key, None)

    def close(self) -> None:
        """Drop all pending updates and stop the timer."""
        with self._lock:
            self.updates.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _flush_later(self) -> None:
        self._timer = self._loop.call_later(INTERVAL_S, self._flush)

    def _flush(self) -> None:
        with self._lock:
            updates, self.updates = self.updates, {}
            self._is_due = False
        for key, update in updates.items():
            self._send(key, update)
