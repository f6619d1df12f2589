"""The event loop of the server and the workers, and the end of their processes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import NoReturn


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop, or asyncio's own if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:  # not available on this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def end_process(code: int) -> NoReturn:
    """End the process with this code, even if a task or a DNS lookup still runs in a thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    others = (each for each in threading.enumerate() if each is not threading.current_thread())
    if any(not thread.daemon for thread in others):
        os._exit(code)
    sys.exit(code)
