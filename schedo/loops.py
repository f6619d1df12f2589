"""The event loop that the long-lived processes run on, and how such a process ends."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import NoReturn


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop, or asyncio's own where there is none."""
    try:
        import uvloop
    except ImportError:  # not made for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def end_process(code: int) -> NoReturn:
    """End with this code, also when a plain function or a look-up goes on in its thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    others = (each for each in threading.enumerate() if each is not threading.current_thread())
    if any(not thread.daemon for thread in others):
        os._exit(code)
    sys.exit(code)
