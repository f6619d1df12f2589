"""What handlers say of their progress while they run, gathered and passed on in turns.

Outside of a worker it is said to nobody, so that a handler runs everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

from schedo.remote.messages import Record, Word, render_progress

# A handler may speak in a tight loop; the server hears of it ten times a second.
INTERVAL_S = 0.1
LOG_CHARACTERS_MAX = 16_384

Say = Callable[[Record], None]
_say: ContextVar[Say] = ContextVar("schedo_say")


def report_progress(
    percent: float | None = None, message: str | None = None, *, log: str | None = None
) -> None:
    """Say how far the running job is: 0 to 100, a word about it, a line for its log.

    To be called from a handler, from any thread. What was said last is at
    GET /v1/jobs/{id}/progress while the job runs; it is not stored.
    """
    if percent is not None and not 0 <= percent <= 100:
        raise ValueError(f"percent is 0 to 100, not {percent!r}")
    say = _say.get(None)
    if say is not None:
        said = {"percent": percent, "message": message, "log": log}
        say({name: value for name, value in said.items() if value is not None})


class Progress:
    """What was said of each lease since it was last passed on."""

    def __init__(self, tell: Callable[[Word], None]) -> None:
        self._tell = tell
        self._said: dict[str, Record] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def listen(self, lease: str) -> None:
        """Take what the running context says for progress of this lease."""

        def say(said: Record) -> None:
            self._loop.call_soon_threadsafe(self._note, lease, said)

        _say.set(say)

    def forget(self, lease: str) -> None:
        """Pass nothing on of an attempt that has ended."""
        self._said.pop(lease, None)

    def close(self) -> None:
        """Pass nothing on any more."""
        self._said.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _note(self, lease: str, said: Record) -> None:
        known = self._said.setdefault(lease, {})
        if "log" in said and "log" in known:
            said = {**said, "log": f"{known['log']}\n{said['log']}"[-LOG_CHARACTERS_MAX:]}
        known |= said
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._pass_on)

    def _pass_on(self) -> None:
        self._timer = None
        for lease, said in self._said.items():
            self._tell(render_progress(lease, said))
        self._said.clear()
