"""Passes of the event loop, for tests that wait for what was called soon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WITHIN_S = 5.0  # ends a wait for what does not come, and says nothing about how long it takes


async def one_pass() -> None:
    """Let everything run that waits in the event loop now."""
    passed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(passed.set_result, None)
    await passed


async def until(is_so: Callable[[], object]) -> None:
    """Let the event loop run until something is so."""
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            await one_pass()
