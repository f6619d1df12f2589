"""What handlers and commands say while they run, gathered and passed on in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from schedo.core.model import LeaseKey
from schedo.core.value_limits import LOG_CHARACTERS_MAX

# A handler may speak in a tight loop; the server hears of it ten times a second.
INTERVAL_S = 0.1


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an attempt is: 0 to 100, a word about it, lines for its log, its output so far."""

    percent: float | None = None
    message: str | None = None
    log: str | None = None
    output: str | None = None

    def then(self, later: Said) -> Said:
        """Return both as one: the later word counts, but every line of the log."""
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


def ignore_progress(key: LeaseKey, said: Said) -> None:
    """Say it to nobody, so that a handler runs everywhere."""


class Progress:
    """What was said of each attempt since it was last passed on."""

    def __init__(self, pass_on: ReportProgress) -> None:
        self._pass_on = pass_on
        self._said: dict[LeaseKey, Said] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def tell(self, key: LeaseKey, said: Said) -> None:
        """Take something in; from any thread."""
        self._loop.call_soon_threadsafe(self._note, key, said)

    def forget(self, key: LeaseKey) -> None:
        """Pass nothing on of an attempt that has ended."""
        if self._said:
            self._said.pop(key, None)

    def close(self) -> None:
        """Pass nothing on any more."""
        self._said.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _note(self, key: LeaseKey, said: Said) -> None:
        known = self._said.get(key)
        self._said[key] = said if known is None else known.then(said)
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        said, self._said = self._said, {}
        for key, each in said.items():
            self._pass_on(key, each)
