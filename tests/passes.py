"""Passes of the event loop, for tests that wait for what was called soon."""

from __future__ import annotations

import asyncio


async def one_pass() -> None:
    """Let everything run that waits in the event loop now."""
    passed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(passed.set_result, None)
    await passed
