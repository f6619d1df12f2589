"""The shutdown of a process that runs attempts: its signals, and the grace time of its attempts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_before: dict[signal.Signals, Any] = {}  # the handlers that this module has replaced


def handle_signals(stop: Callable[[], None], stop_now: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT and `stop_now` at the second; the third kills.

    `stop` begins a shutdown in which running attempts have the grace time to end; `stop_now` ends
    that time.
    """
    loop = asyncio.get_running_loop()
    steps = [stop_now, stop]

    def on_signal() -> None:
        steps.pop()()
        if not steps:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)

    for number in SIGNALS:
        _handle(number, on_signal)


def handle_hangup(reload: Callable[[], None]) -> None:
    """Call `reload` at each SIGHUP."""
    _handle(signal.SIGHUP, reload)


def handle_upgrades(upgrade: Callable[[], None]) -> None:
    """Call `upgrade` at each SIGUSR2."""
    _handle(signal.SIGUSR2, upgrade)


def _handle(number: signal.Signals, call: Callable[[], None]) -> None:
    """Call the function at each signal to this process, but not at one to a fork of it."""
    if not _before:
        os.register_at_fork(after_in_child=_restore)
    _before.setdefault(number, signal.getsignal(number))
    asyncio.get_running_loop().add_signal_handler(number, call)


def _restore() -> None:
    """Give a process that a handler has forked its own signals.

    Until Python 3.12, it would write them into the socket by which the event loop of its parent
    learns of signals: a multiprocessing.Pool that ends its processes would stop the worker.
    """
    signal.set_wakeup_fd(-1)
    for number, handler in _before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


class Grace:
    """How long running attempts may take to end after a shutdown has begun."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End the grace time now; one that begins later ends at once."""
        self._ended.set()

    async def wait(self, done: Coroutine[Any, Any, Any], grace_s: float | None) -> None:
        """Wait until `done` has returned or the grace time is over; None: it has no end."""
        waits = [asyncio.create_task(done), asyncio.create_task(self._ended.wait())]
        try:
            await asyncio.wait(waits, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
