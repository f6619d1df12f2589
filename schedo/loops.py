"""The event loop that the long-lived processes run on."""

from __future__ import annotations

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop, or asyncio's own where there is none."""
    try:
        import uvloop
    except ImportError:  # not made for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
